"""Which stages DVC finds out of date."""

from dvc.exceptions import DvcException
from dvc.repo import Repo
from networkx import ancestors

from darkroom.dag.status import status as status_of
from darkroom.errors import DarkroomError
from darkroom.fingerprint.stages import STAGE as CODE
from darkroom.stages import STAGES


def _place(name: str) -> tuple[int, str]:
    stage, _, item = name.partition("@")
    return (STAGES.index(stage) if stage in STAGES else len(STAGES), item)


def ask_dvc() -> tuple[list[str], set[str]]:
    """Return the names of all stages that have a command, in the order of the DAG, and those of them that are stale.

    A stage below a stale one is stale too: it reads what will change.

    Raises:
        DarkroomError: DVC cannot read the repository.
    """
    try:
        with Repo(_wait_for_lock=True) as repo:
            graph = repo.index.graph  # an edge points from a stage to one that it needs
            status = status_of(repo)
    except DvcException as error:
        raise DarkroomError(f"DVC cannot say what is out of date: {error}") from error
    changed = [stage for stage in graph if stage.cmd and stage.addressing in status]
    stale = {stage.addressing for stage in changed}
    stale |= {later.addressing for stage in changed for later in ancestors(graph, stage)}
    names = (stage.addressing for stage in graph if stage.cmd and stage.name != CODE)
    return sorted(names, key=_place), stale
