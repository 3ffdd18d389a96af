"""What a stage is given, compared when it ends: DVC records the values that stand in the files then."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from darkroom.errors import DarkroomError
from darkroom.params.stage import address, differences, given
from darkroom.training.state import changed_since, declared

_SMALL = 1 << 20  # bytes of a file that is compared by content: DVC rewrites such files with what they held
_IGNORED = {"__pycache__", ".snakemake_timestamp"}  # in .dvcignore


@dataclass(frozen=True)
class Inputs:
    """What a stage is given.

    params: its parameters, without `run`, which changes no result.
    files: what stands for each dependency, by path; `_state` says what.
    """

    stage: str
    item: str | None
    params: Mapping[str, Any]
    files: Mapping[str, str]

    @classmethod
    def of(cls, stage: str, item: str | None, values: Mapping[str, Any]) -> "Inputs":
        """Return what a stage is given now, with the `values` that it has read from params.yaml.

        Raises:
            DarkroomError: params.yaml or dvc.yaml is not valid.
        """
        params = {name: value for name, value in values.items() if name != "run"}
        return cls(stage, item, params, {dep: _state(Path(dep)) for dep in declared(stage, item, ["deps"])})

    def require_same(self) -> None:
        """Refuse a result whose parameters, inputs or code have changed since.

        Raises:
            DarkroomError: names what changed.
        """
        name = address(self.stage, self.item)
        try:
            now = Inputs.of(self.stage, self.item, given(self.stage, self.item))
        except DarkroomError as error:
            raise DarkroomError(f"{error} {_REFUSED.format(name=name)}") from error
        changes = list(differences("", self.params, now.params))
        changes += [f"{path} has changed" for path in self.files if self.files[path] != now.files.get(path)]
        changes += changed_since(self.stage, self.item)
        if changes:
            raise DarkroomError(f"edited while {name} ran: {'; '.join(changes[:4])}. {_REFUSED.format(name=name)}")


_REFUSED = (
    "The result of {name} is not recorded, since DVC would record it with the new values. Run the same command again "
    "for the new values, or undo the edit first; the state of a training is kept for both."
)


def _state(path: Path) -> str:
    """Return a hash of a small file's content, or of the name, size and time of change of each file in a folder."""
    if path.is_file() and path.stat().st_size <= _SMALL:
        return sha256(path.read_bytes()).hexdigest()
    digest = sha256()
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(set(folders) - _IGNORED)
        for name in sorted(set(names) - _IGNORED):
            file = Path(folder, name)
            digest.update(f"{file} {_stat(file)}\n".encode(errors="surrogateescape"))
    return digest.hexdigest() if path.is_dir() else _stat(path)


def _stat(file: Path) -> str:
    try:
        found = file.stat()
    except OSError:  # removed meanwhile, or a broken link
        return "missing"
    return f"{found.st_size} {found.st_mtime_ns}"
