"""The names of tars: in a folder, at URLs, and in messages."""

from pathlib import Path, PurePosixPath

from braceexpand import braceexpand

from darkroom.data.keys import shown
from darkroom.data.remote import require_url
from darkroom.errors import DarkroomError
from darkroom.remote import is_remote, local_path, redacted

ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")


def in_folder(path: Path) -> list[str]:
    """Return the tars of a folder, sorted by name, or the one tar that `path` is. Raises DarkroomError: no tar."""
    if path.is_file():
        return [path.as_posix()]
    if not path.is_dir():
        raise DarkroomError(f"{path} does not exist: give the part the folder of the tars, or one tar.")
    found = sorted(file.as_posix() for file in path.iterdir() if file.name.endswith(ENDINGS) and file.is_file())
    if not found:
        raise DarkroomError(f"{path} holds no tar ({', '.join(ENDINGS)}): give the part the folder of the tars.")
    for tar in found:
        if shown(tar) != tar:
            raise DarkroomError(f"the name of {shown(tar)} is not UTF-8, and no manifest can hold it: rename the file.")
    return found


def behind(url: str) -> list[str]:
    """Return the URLs in `webdataset.url`: ranges in braces are expanded, `::` separates several URLs.

    Raises:
        DarkroomError: see `darkroom.data.remote.require_url`.
    """
    try:
        found = [each for piece in url.split("::") for each in braceexpand(piece.strip(), escape=False)]
    except ValueError as error:
        raise DarkroomError(f"`webdataset.url` is {redacted(url)!r}, where a brace is open or one too many.") from error
    for each in found:
        require_url(each, "webdataset.url")
    return found


def shown_tar(tar: str) -> str:
    """Return the name of a tar in messages and lists: its URL without secrets, or its file name."""
    return redacted(tar) if is_remote(tar) else shown(PurePosixPath(local_path(tar).as_posix()).name)


def stem_of(shard: str) -> str:
    """Return the file name of a tar without its extension."""
    name = shard.rpartition("/")[2]
    return next((name.removesuffix(ending) for ending in ENDINGS if name.endswith(ending)), name)
