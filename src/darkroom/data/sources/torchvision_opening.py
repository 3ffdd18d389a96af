"""Opens a data set of torchvision, and downloads or unpacks its files where they are missing.

Most classes of torchvision check that files exist, and few check their content. So files are downloaded and unpacked in
a temporary folder, and moved into place after the data set was opened from there.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from darkroom.artifacts.atomic import require_writable, sync_tree
from darkroom.data.sources.torchvision_classes import files, parameters
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS

# Errors of torchvision about wrong arguments or a missing package; all other errors are about the files.
_ASKED = (ImportError, TypeError, ValueError)


def downloads() -> Path:
    """Return the folder of downloads: that of the main checkout, also in a queued experiment."""
    return Path(os.environ.get("DVC_ROOT", ".")) / ".darkroom" / "downloads" / "torchvision"


def open_set(cls: type, root: Path, given: Mapping[str, Any]) -> Any:
    """Return a data set whose files exist; images in files are returned as their paths (`path_only`)."""
    takes = parameters(cls)
    fixed = {"download": False, "loader": path_only}
    return cls(str(root), **given, **{name: value for name, value in fixed.items() if name in takes})


def path_only(path: Any) -> str:
    """Return a path unchanged: the loader of a data set that leaves images undecoded."""
    return str(path)


def open_or_download(cls: type, root: Path, given: Mapping[str, Any], download: bool) -> Any:
    """Return a data set, after downloading or unpacking missing files; see `open_set`.

    Raises:
        DarkroomError: the files are missing and cannot be downloaded, or are damaged, or an option has a wrong value;
            the message names the folder and, where torchvision does, the files.
    """
    can = "download" in parameters(cls) and download
    with _told(cls):
        if not _unpacks(cls, root, given):
            try:
                return open_set(cls, root, given)
            except _ASKED:
                raise
            except Exception as error:
                if not can:
                    raise _absent(cls, root, root, error, download) from error
        with _locked(root):
            if (found := _brought_meanwhile(cls, root, given)) is None:
                _bring(cls, root, given, download)
                found = open_set(cls, root, given)
        return found


def _brought_meanwhile(cls: type, root: Path, given: Mapping[str, Any]) -> Any:
    """Return the data set, where another process has downloaded it meanwhile."""
    if _unpacks(cls, root, given):
        return None
    try:
        return open_set(cls, root, given)
    except Exception:
        return None


def _unpacks(cls: type, root: Path, given: Mapping[str, Any]) -> bool:
    """Return whether a class unpacks archives without an option for it, as ImageNet does."""
    return hasattr(cls, "parse_archives") and not ((root / given["split"]).is_dir() and (root / "meta.bin").is_file())


def _bring(cls: type, root: Path, given: Mapping[str, Any], download: bool) -> None:
    """Download and unpack a data set in a temporary folder inside `root`, and move new files into place."""
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
            raise _absent(cls, root, beside, error, download) from error
        sync_tree(beside)
        _move(beside, root)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _link(root: Path, beside: Path) -> None:
    """Link the content of `root` into `beside`: archives that a person put there are unpacked, not downloaded."""
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


@contextmanager
def _told(cls: type) -> Iterator[None]:
    """Turn errors of a class about its arguments, or about a missing package, into DarkroomErrors."""
    try:
        yield
    except ImportError as error:
        raise DarkroomError(f"torchvision needs another package for {cls.__name__}: {error}") from error
    except (TypeError, ValueError) as error:
        raise DarkroomError(f"{PARAMS}: torchvision cannot open {cls.__name__} so: {error}") from error


def _absent(cls: type, root: Path, tried: Path, error: BaseException, download: bool) -> DarkroomError:
    """Return the error for missing files: what was tried, which files are needed, and where."""
    said = " ".join(str(error).replace(str(tried), str(root)).split())
    folders = [each.relative_to(tried) for each in tried.rglob("*") if each.is_dir()] if tried != root else []
    made = [each for each in folders if not (root / each).exists()]
    place = root / max(made, key=lambda each: (len(each.parts), str(each)), default=Path())
    names = ", ".join(files(cls))
    put = f"Put its files ({names}) into {place}" if names else f"Put its files into {place}"
    allow = "" if download else ", set `torchvision.download` to true where they are archives to be unpacked"
    return DarkroomError(
        f"{cls.__name__} is not in {root}, or not whole, and could not be had: {said.rstrip('.')}. "
        f"{put}{allow}, and run the same command again."
    )
