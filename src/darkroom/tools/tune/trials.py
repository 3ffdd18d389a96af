"""The trainings of this DAG, tried one at a time in miniature."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from darkroom.check.check import check, read_params
from darkroom.dag.stages import TRAININGS
from darkroom.environment import choose_device, set_threads
from darkroom.params.kinds import OWN_TRAINING
from darkroom.tools.cores import core_count
from darkroom.tools.plan.forks import Lost, forks, quiet
from darkroom.tools.plan.miniature import IMAGES, Miniature, count_images, ingested, scratch
from darkroom.tools.plan.plan import REHEARSE, Dag, ask_dvc, choose, in_miniature
from darkroom.tools.plan.table import UNKNOWN
from darkroom.tools.tune.search import KEYS, Changes, Found, Tried, search
from darkroom.training.state import keep_compiled

_ATTEMPT = "darkroom.tools.tune.trial:attempt"


@dataclass(frozen=True)
class Trials:
    """Where trainings are tried.

    attempt: tries settings of a training in a process of its own: its name, changes, and the file of `Trial`.
    """

    chosen: list[str]  # the trainings that were asked for, in the order of the DAG
    lacks: Mapping[str, str]  # of each chosen one a stage above it that cannot run here, if there is one
    attempt: Callable[[str, Changes | None, Path], Found]

    def tries(self, stage: str) -> Iterator[Tried]:
        """Yield settings of a training, each once it was tried: of a U-Net without those that all U-Nets share."""
        keys = [key for key in KEYS if "@" not in stage or key in OWN_TRAINING]
        with TemporaryDirectory(prefix="darkroom-tune-") as folder:
            exact = Path(folder) / "exact.pt"
            yield from search(lambda changes: self.attempt(stage, changes, exact), core_count(), keys)


@contextmanager
def trials(names: Sequence[str], log: Path) -> Iterator[Trials]:
    """Run what trainings (`names`; none: all) need in miniature, printing to a log, and yield where these are tried.

    Raises:
        DarkroomError: a name is no training, or params.yaml or dvc.yaml is not valid.
    """
    check()
    params = read_params()
    set_threads(core_count())  # of NumPy; torch's are set for each stage
    choose_device(params["run"]["device"])
    keep_compiled()
    with ExitStack() as stack:
        with quiet(log):
            dag = ask_dvc()
            known = [name for name in dag.stages if name.partition("@")[0] in TRAININGS]
            chosen = choose(names, known, set(), everything=True, what="training")
            above = [name for name in dag.stages if any(name in dag.needs[each] for each in chosen)]
            modules = [task.partition(":")[0] for task in (REHEARSE, _ATTEMPT)]
            submit = stack.enter_context(forks(core_count(), *modules))
            on = stack.enter_context(_miniature(dag))
            plans = in_miniature(submit, above, on, dag, params)
        lacks = {
            stage: name
            for stage in chosen
            for name in reversed(above)
            if name in dag.needs[stage] and plans[name].source in UNKNOWN
        }

        def attempt(stage: str, changes: Changes | None, exact: Path) -> Found:
            answer: Found | Lost = submit(_ATTEMPT, stage, on, changes, exact).result()
            return Found(why=f"it {answer.why}") if isinstance(answer, Lost) else answer

        yield Trials(chosen, lacks, attempt)


@contextmanager
def _miniature(dag: Dag) -> Iterator[Miniature]:
    """Yield where stages run, on 2,000 images at most."""
    parts = count_images(dag.stale)
    scale = -(-sum(count for _, count in parts.values()) // IMAGES)
    ready = ingested(parts, dag.stale) if scale == 1 else set()
    with scratch(ready) as folder:
        yield Miniature(folder, parts, scale, ready)
