"""Opens data sets of the Hugging Face Hub and the files of their images, and says what to do about its errors."""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from darkroom.data.damage import DamageError, Reason
from darkroom.data.sources.captions import SPEAKER
from darkroom.errors import DarkroomError
from darkroom.params.parts import Hub as Settings


def content(value: Any) -> tuple[bytes | str | None, str | None]:
    """Return the bytes or the address of an image from the value of its column, and its file name."""
    if value is None:
        return None, None
    path = value.get("path")
    data = value.get("bytes")
    return (path if data is None else data), path


@dataclass(frozen=True)
class Files:
    """The files of one data set. Other files are refused: a table could name any file of this machine as an image.

    name: the name of the data set, for messages.
    root: the prefix of the addresses of its files: an absolute folder, or hf://datasets/NAME@COMMIT.
    """

    name: str
    root: str

    @property
    def _local(self) -> bool:
        return not self.root.startswith("hf://")

    def short(self, address: str) -> str:
        """Return an address relative to the data set, or its file name where it is outside of the data set."""
        inner, _, archive = address.partition("::")
        own = self._own(archive or inner)
        if own is None:
            return PurePosixPath(inner).name
        return f"{own}: {inner.removeprefix('zip://')}" if archive else own

    def _own(self, address: str) -> str | None:
        path = os.path.normpath(Path(address).absolute()) if self._local else address
        start = self.root.rstrip("/") + "/"
        return path[len(start) :] if path.startswith(start) and ".." not in path.split("/") else None

    def read(self, address: str) -> bytes:
        """Return the content of a file, `zip://MEMBER::ARCHIVE` for one in an archive.

        Raises:
            DamageError: the file cannot be read, or is not a file of the data set.
            DarkroomError: the Hub cannot be reached.
        """
        import fsspec

        inner, _, archive = address.partition("::")
        if "::" in archive or (archive and not inner.startswith("zip://")) or self._own(archive or inner) is None:
            raise DamageError(Reason.UNREADABLE, "the row has no bytes, and its path is outside of the data set")
        try:
            with fsspec.open(address, "rb") as file:
                return file.read()
        except FileNotFoundError as error:
            raise DamageError(Reason.MISSING, "the row names a file that is not there") from error
        except Exception as error:  # errors of zipfile or the system; on the Hub also of the network
            if not self._local:
                raise DarkroomError(f"{address} cannot be read: {type(error).__name__}: {error}") from error
            raise DamageError(Reason.UNREADABLE, type(error).__name__) from error


_TIMEOUT = 20  # seconds for the Hub's first answer


def open_stream(settings: Settings, path: Path | None) -> tuple[Any, dict[str, Any], Files]:
    """Return the split as a `datasets.IterableDataset` of undecoded images, its metadata, and its files.

    Raises:
        DarkroomError: see `darkroom.data.sources.hub.Hub`.
    """
    stream, metadata, files = open_split(settings, path)
    import datasets

    _check(settings, stream.features, files.name)
    columns = [column for column in (settings.image, settings.label, settings.caption) if column]
    stream = stream.select_columns(list(dict.fromkeys(columns)))
    return stream.cast_column(settings.image, datasets.Image(decode=False)), metadata, files


def open_split(settings: Settings, path: Path | None) -> tuple[Any, dict[str, Any], Files]:
    """Return the split with all its columns, whatever they are, its metadata, and its files.

    Raises:
        DarkroomError: see `darkroom.data.sources.hub.Hub`; no column is looked for.
    """
    try:
        import datasets
    except ImportError as error:
        raise DarkroomError(
            "parts with the source `hub` are read with the package `datasets`, which is not installed: install it with "
            "`pip install 'darkroom[hub]'`."
        ) from error
    datasets.disable_progress_bars()
    chosen = {"configuration": settings.configuration, "split": settings.split}
    if path is not None:
        if not path.is_dir():
            raise DarkroomError(
                f"{path}: the path of a part with the source `hub` must be a folder in the Hub's layout."
            )
        target, commit = str(path.absolute()), None
        metadata, files = chosen, Files(str(path), target)
    else:
        target, commit = settings.dataset, _commit(settings)
        metadata = {"dataset": target, "revision": commit, **chosen}
        files = Files(target, f"hf://datasets/{target}@{commit}")
    splits = _load(settings, files.name, target, commit)
    if settings.split not in splits:
        raise DarkroomError(f"{files.name} has no split `{settings.split}`: it has {_named(splits)}. See `hub.split`.")
    stream = splits[settings.split]
    if stream.features is None:  # some formats do not declare their columns: then they follow from the first rows
        stream = stream._resolve_features()
    return stream, metadata, files


def _named(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _commit(settings: Settings) -> str:
    """Return the commit of the revision of a data set, by default of its newest one."""
    from huggingface_hub import HfApi, errors

    name = settings.dataset
    if Path(name).exists():  # `datasets` would read it in place of the Hub's, and DVC would not know
        raise DarkroomError(f"`hub.dataset` is {name}, which is also a folder here: give it as the part's `path`.")
    try:
        info = HfApi().dataset_info(name, revision=settings.revision, timeout=_TIMEOUT)
    except errors.HFValidationError as error:
        raise DarkroomError(f"`hub.dataset` is {name!r}, which is not a name of the Hub: write OWNER/NAME.") from error
    except errors.RevisionNotFoundError as error:
        raise DarkroomError(f"{name} has no revision `{settings.revision}`: see `hub.revision`.") from error
    except errors.RepositoryNotFoundError as error:
        raise DarkroomError(
            f"the Hub has no data set {name}, or it is private or gated: check the name; where it needs an account, "
            "put a token of yours into the environment variable HF_TOKEN."
        ) from error
    except errors.OfflineModeIsEnabled as error:
        raise DarkroomError(
            f"{name} is on the Hub, and HF_HUB_OFFLINE forbids requests: unset that, or give the part a `path`."
        ) from error
    except Exception as error:  # errors of any library that the Hub's client uses
        raise DarkroomError(
            f"{name}: the Hugging Face Hub cannot be reached ({type(error).__name__}: {error}). Without internet, copy "
            "the data set to a folder and name that as the part's `path`."
        ) from error
    assert info.sha is not None  # the Hub always says it
    return info.sha


def _load(settings: Settings, name: str, target: str, commit: str | None) -> Any:
    """Return the streams of all splits of a configuration, by name."""
    import datasets
    from datasets.exceptions import DatasetNotFoundError

    try:
        # A new cache: from the usual one `datasets` takes any version when a request to the Hub fails.
        with tempfile.TemporaryDirectory() as cache:
            return datasets.load_dataset(
                target, settings.configuration, revision=commit, streaming=True, cache_dir=cache
            )
    except DatasetNotFoundError as error:
        if commit is None:
            raise DarkroomError(f"{name} holds no files that the package `datasets` reads as a data set.") from error
        raise DarkroomError(
            f"{name} is gated: accept its terms on https://huggingface.co/datasets/{name}, and put a token of yours "
            "into the environment variable HF_TOKEN."
        ) from error
    except Exception as error:  # an unknown configuration is a ValueError among many
        known = _configurations(target, commit)
        if known and settings.configuration not in known:
            wanted = (
                f"no configuration `{settings.configuration}`" if settings.configuration else "several configurations"
            )
            raise DarkroomError(f"{name} has {wanted}: choose {_named(known)} as `hub.configuration`.") from error
        reason = " ".join(str(error).split())[:300]
        raise DarkroomError(f"{name} cannot be read as a data set: {type(error).__name__}: {reason}") from error


def _configurations(target: str, commit: str | None) -> list[str]:
    import datasets

    try:
        return datasets.get_dataset_config_names(target, revision=commit)
    except Exception:  # then the error before this one is reported
        return []


def _check(settings: Settings, features: Any, name: str) -> None:
    """Check that the columns exist and have the right types."""
    import datasets

    wanted = {"image": settings.image, "label": settings.label, "caption": settings.caption}
    for key, column in wanted.items():
        if column is not None and column not in features:
            raise DarkroomError(f"{name} has no column `{column}`, named by `hub.{key}`: it has {_named(features)}.")
    image = features[settings.image]
    if not isinstance(image, datasets.Image) and not (isinstance(image, dict) and {"bytes", "path"} >= set(image)):
        kind = getattr(image, "dtype", type(image).__name__)
        if kind not in ("binary", "large_binary"):
            raise DarkroomError(f"{name}: the column `{settings.image}`, `hub.image`, holds {kind}, not images.")
    label = features[settings.label] if settings.label else None
    if label is not None and not isinstance(label, datasets.ClassLabel) and not _plain(label, ("int", "uint", "bool")):
        raise DarkroomError(f"{name}: the column `{settings.label}`, `hub.label`, holds {label}, not one label a row.")
    caption = features[settings.caption] if settings.caption else None
    if caption is not None and not holds_texts(caption):
        raise DarkroomError(f"{name}: the column `{settings.caption}`, `hub.caption`, holds {caption}, not texts.")


def holds_texts(feature: Any) -> bool:
    """Return whether a column holds texts, lists of them, or conversations."""
    inner = getattr(feature, "feature", feature)  # of a list
    return _plain(inner, ()) or (isinstance(inner, dict) and bool(inner.keys() & SPEAKER))


def _plain(feature: Any, kinds: tuple[str, ...]) -> bool:
    """Return whether a column holds texts, or values of a type that begins with one of `kinds`."""
    return str(getattr(feature, "dtype", "")).startswith(("string", "large_string", *kinds))
