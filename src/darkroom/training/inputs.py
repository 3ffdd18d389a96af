"""What a stage was given, compared when it ends: DVC records the values that stand in the files then."""

import os
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from darkroom.errors import DarkroomError
from darkroom.params.stage import address, differences, given
from darkroom.training.state import changed_since, declared

_SMALL = 1 << 20  # bytes of a file that is compared by content: DVC rewrites such files with what they held
_IGNORED = re.compile(r"__pycache__|\.(snakemake(_timestamp)?|git|hg|dvc|venv|darkroom)|.*\.pyc|\..*\.tmp-.*")  # by DVC


class Inputs:
    """What a stage is given when it starts: `values` of params.yaml, which the caller has read, and its dependencies.

    Raises:
        DarkroomError: dvc.yaml is not valid.
    """

    def __init__(self, stage: str, item: str | None, values: Mapping[str, Any]) -> None:
        self._stage, self._item, self._params = stage, item, _without_run(values)
        self._files = {dep: _state(Path(dep)) for dep in declared(stage, item, ["deps"])}

    def require_same(self) -> None:
        """Check that parameters, inputs and code are still what they were.

        Raises:
            DarkroomError: they are not, or params.yaml is not valid now; names what changed.
        """
        changes = list(differences("", self._params, _without_run(given(self._stage, self._item))))
        changes += [f"{path} has changed" for path, state in self._files.items() if _state(Path(path)) != state]
        changes += changed_since(self._stage, self._item)
        if changes:
            name = address(self._stage, self._item)
            raise DarkroomError(
                f"edited while {name} ran: {'; '.join(changes[:4])}. The result is not recorded. Run the same command "
                "again for the new values, or undo the edit first; the state of a training is kept for both."
            )


def _without_run(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != "run"}  # which changes no result


def _state(path: Path) -> str:
    """Return a hash of a small file's content, or of the name, size and time of change of each file in a folder."""
    if path.is_file() and path.stat().st_size <= _SMALL:
        return sha256(path.read_bytes()).hexdigest()
    digest = sha256()
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not _IGNORED.fullmatch(name))
        for file in (Path(folder, name) for name in sorted(names) if not _IGNORED.fullmatch(name)):
            digest.update(f"{file} {_stat(file)}\n".encode(errors="surrogateescape"))
    return digest.hexdigest() if path.is_dir() else _stat(path)


def _stat(file: Path) -> str:
    try:
        found = file.stat()
    except OSError:  # removed meanwhile, or a broken link
        return "missing"
    return f"{found.st_size} {found.st_mtime_ns}"
