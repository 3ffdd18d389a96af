"""Opens a data set of torchvision, and downloads or unpacks its files where they are missing.

Most classes of torchvision check that files exist, and few check their content. So files are downloaded and unpacked in
a temporary folder, and moved into place after the data set was opened from there.
"""

import fcntl
import inspect
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from darkroom.artifacts.atomic import require_writable, sync_tree
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS

# Errors of torchvision about wrong arguments or a missing package; all other errors are about the files.
_ASKED = (ImportError, TypeError, ValueError)
_ARCHIVES = (".gz", ".tgz", ".zip", ".tar", ".bz2", ".xz", ".mat", ".data", ".h5", ".csv")


def parameters(cls: type) -> dict[str, inspect.Parameter]:
    """Return the parameters of a class, with those of its base classes that it passes on."""
    found: dict[str, inspect.Parameter] = {}
    for each in cls.__mro__[:-1]:
        if "__init__" not in vars(each):
            continue
        signature = inspect.signature(each.__init__).parameters  # type: ignore[misc]
        found = {**dict(list(signature.items())[1:]), **found}
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.values()):
            break
    return {name: each for name, each in found.items() if each.kind is not each.VAR_KEYWORD}


def downloads() -> Path:
    """Return the folder of downloads: that of the main checkout, also in a queued experiment."""
    return Path(os.environ.get("DVC_ROOT", ".")) / ".darkroom" / "downloads" / "torchvision"


def open_set(cls: type, root: Path, given: Mapping[str, Any]) -> Any:
    """Return a data set whose files exist; images in files are returned as their paths."""
    fixed = {"download": False, "loader": str}
    return cls(str(root), **given, **{name: value for name, value in fixed.items() if name in parameters(cls)})


def open_or_download(cls: type, root: Path, given: Mapping[str, Any], download: bool) -> Any:
    """Return a data set, after downloading or unpacking missing files; see `open_set`.

    Raises:
        DarkroomError: the files are missing and cannot be downloaded, or are damaged, or an option has a wrong value;
            the message names the folder and what torchvision says.
    """
    # ImageNet unpacks its archives without an option for it.
    unpacks = hasattr(cls, "parse_archives")
    ready = not unpacks or ((root / given["split"]).is_dir() and (root / "meta.bin").is_file())
    try:
        try:
            if ready:
                return open_set(cls, root, given)
        except _ASKED:
            raise
        except Exception as error:
            if not (download and "download" in parameters(cls)):
                raise _absent(cls, root, error, download) from error
        with _locked(root):
            if ready:
                with suppress(Exception):  # another process brought it meanwhile
                    return open_set(cls, root, given)
            _bring(cls, root, given, download)
            return open_set(cls, root, given)
    except ImportError as error:
        raise DarkroomError(f"torchvision needs another package for {cls.__name__}: {error}") from error
    except (TypeError, ValueError) as error:
        raise DarkroomError(f"{PARAMS}: torchvision cannot open {cls.__name__} so: {error}") from error


def _bring(cls: type, root: Path, given: Mapping[str, Any], download: bool) -> None:
    """Download and unpack a data set in a temporary folder inside `root`, and move new files into place.

    What lies in `root` is linked there: archives that a person put there are unpacked, not downloaded, and what another
    process brought meanwhile is found.
    """
    require_writable(root / "download")
    for left in root.glob(".download-*"):
        shutil.rmtree(left)
    beside = Path(tempfile.mkdtemp(prefix=".download-", dir=root))
    asked = {"download": True} if "download" in parameters(cls) else {}
    try:
        _link(root, beside)
        try:
            cls(str(beside), **given, **asked)
        except Exception as error:
            # Some classes raise ValueError where the data set is no longer available for download.
            if isinstance(error, _ASKED) and not (asked and isinstance(error, ValueError)):
                raise
            raise _absent(cls, root, error, download, beside) from error
        sync_tree(beside)
        _move(beside, root)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _link(root: Path, beside: Path) -> None:
    for path in sorted(root.rglob("*")):
        place = beside / path.relative_to(root)
        if beside in (path, *path.parents):
            continue
        if path.is_dir():
            place.mkdir()
            continue
        try:
            os.link(path.resolve(), place)
        except OSError:
            shutil.copyfile(path, place)


def _move(new: Path, root: Path) -> None:
    """Move files and folders into place; files are added to existing folders."""
    for path in sorted(new.iterdir()):
        place = root / path.name
        if path.is_dir() and place.is_dir():
            _move(path, place)
        else:
            path.replace(place)


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Hold the lock of a data set: one process at a time downloads it, while parts are ingested in parallel."""
    path = downloads() / f".{root.absolute().name}.lock"
    require_writable(path)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _absent(cls: type, root: Path, error: BaseException, download: bool, tried: Path | None = None) -> DarkroomError:
    """Return the error for missing files: what torchvision says, which files are needed, and where they belong.

    tried: the folder into which they were to come, with the folders that the class makes.
    """
    said = " ".join(str(error).replace(str(tried or root), str(root)).split())
    made = [path.relative_to(tried) for path in tried.rglob("*") if path.is_dir()] if tried else []
    new = [path for path in made if not (root / path).exists()]
    place = root / max(new, key=lambda path: (len(path.parts), str(path)), default=Path())
    names = f" ({found})" if (found := ", ".join(files(cls))) else ""
    allow = "" if download else ", set `torchvision.download` to true where they are archives to be unpacked"
    return DarkroomError(
        f"{cls.__name__} is not in {root}, or not whole, and could not be had: {said.rstrip('.')}. "
        f"Put its files{names} into {place}{allow}, and run the same command again."
    )


def files(cls: type) -> list[str]:
    """Return the names of the archives in the download code of a class, or else in its attributes."""
    attributes = {name: inspect.getattr_static(cls, name) for name in dir(cls) if not name.startswith("__")}
    functions = [each for name in ("download", "_download") if inspect.isfunction(each := attributes.get(name))]
    codes = [each.__code__ for each in functions]
    found = _archives([[code.co_consts, [attributes.get(each) for each in code.co_names]] for code in codes])
    return sorted(found or _archives(attributes))


def _archives(value: Any) -> set[str]:
    """Return the names of archives among nested texts: file names, and the ends of addresses."""
    if isinstance(value, str):
        name = PurePosixPath(value).name
        return {name} if name.endswith(_ARCHIVES) and not name.startswith(".") and " " not in name else set()
    if isinstance(value, Mapping):
        value = list(value.values())
    return set().union(*map(_archives, value)) if isinstance(value, list | tuple) else set()
