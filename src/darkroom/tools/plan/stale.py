"""What DVC says of the DAG: its stages, what each needs, and which are out of date."""

import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from dvc.exceptions import DvcException
from dvc.repo import Repo
from dvc.utils.serialize import dump_yaml, load_yaml

from darkroom.dag.fingerprint.stages import STAGE as CODE
from darkroom.dag.stages import STAGES
from darkroom.dag.status import read_status
from darkroom.errors import DarkroomError


@dataclass(frozen=True)
class Dag:
    """The stages that have a command.

    stages: their names, in the order of the DAG.
    stale: those that are out of date. A stage below a stale one is stale too: it reads what will change.
    needs: all stages above each.
    """

    stages: list[str]
    stale: set[str]
    needs: dict[str, set[str]]


def _place(name: str) -> tuple[int, str]:
    stage, _, item = name.partition("@")
    return (list(STAGES).index(stage) if stage in STAGES else len(STAGES), item)


def ask_dvc() -> Dag:
    """Return the stages of the DAG.

    Raises:
        DarkroomError: DVC cannot read the repository.
    """
    try:
        with Repo(_wait_for_lock=True) as repo:
            status = read_status(repo)
    except DvcException as error:
        raise DarkroomError(f"DVC cannot say what is out of date: {error}") from error
    known = status.stages.keys() - {CODE}
    needs = {name: status.needs(name) & known for name in known}
    return Dag(sorted(known, key=_place), status.stale, needs)


def lock_seconds(path: Path = Path("dvc.lock")) -> float:
    """Return the seconds of writing a copy of dvc.lock, as DVC does behind each stage."""
    if not path.is_file():
        return 0.0
    lock = load_yaml(path)
    with TemporaryDirectory(prefix="darkroom-plan-") as folder:
        began = time.process_time()
        dump_yaml(str(Path(folder) / path.name), lock)
        return time.process_time() - began
