"""What DVC says of the DAG: its stages, what each needs, and which are out of date."""

from dataclasses import dataclass, field

from darkroom.dag.fingerprint.stages import STAGE as CODE
from darkroom.dag.repo import observe
from darkroom.dag.stages import STAGES


@dataclass(frozen=True)
class Dag:
    """The stages that have a command.

    stages: their names, in the order of the DAG.
    stale: those that are out of date. A stage below a stale one is stale too: it reads what will change.
    needs: all stages above each.
    running: since when each stage that runs now does, as a part of a sentence.
    """

    stages: list[str]
    stale: set[str]
    needs: dict[str, set[str]]
    running: dict[str, str] = field(default_factory=dict)


def _place(name: str) -> tuple[int, str]:
    stage, _, item = name.partition("@")
    return (list(STAGES).index(stage) if stage in STAGES else len(STAGES), item)


def ask_dvc() -> Dag:
    """Return the stages of the DAG.

    Raises:
        DarkroomError: DVC cannot read the repository.
    """
    status = observe()
    known = status.stages.keys() - {CODE}
    needs = {name: status.needs(name) & known for name in known}
    running = {name: text for name in known if (text := status.runs(name))}
    return Dag(sorted(known, key=_place), status.stale & known, needs, running)
