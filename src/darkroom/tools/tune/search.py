"""Search the settings of a training, one change at a time. Does not import torch."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from darkroom.dag.stages import FOREACH
from darkroom.params.kinds import OWN_TRAINING
from darkroom.tools.editing import shown

Changes = Mapping[str, Any]  # of keys of `training`

KEYS = ("threads", "precision", "tf32", "channels_last", "compile")

EXACT: dict[str, Any] = {"precision": "fp32", "tf32": False, "compile": False, "channels_last": False}
NOTHING = "nothing is trained with these parameters"  # why a training was not tried
AS_IT_IS = "as it is"  # the label of params.yaml's settings
PAYS = 0.97  # fraction of the time, below which a change is worth its line in params.yaml
TOLERANCE = 0.1  # maximum `departure`; beyond it, the training is a different one
COMPILES = 120.0  # seconds of a training, below which compiling, which takes a minute (half on a GPU), cannot pay


@dataclass(frozen=True)
class Result:
    """The result of a training with some settings.

    departure: the maximum of the shift of the loss and the shared difference of the gradients of all batches, both in
        standard deviations between batches, and the fraction that the rest adds to the variance of the gradient.
    convolutions: whether the network has layers that support a memory layout.
    now: the values of the tried keys and of `processes`; for the first yielded result, those in params.yaml.
    """

    why: str = ""  # why it cannot run with them; "": it ran
    updates: int = 0  # optimizer steps of the whole training
    batch: int = 0  # images in one, of one process
    seconds: float = 0.0  # of an optimizer step, with its reading
    first: float = 0.0  # additional seconds of the first one, for example to compile
    loss: float = 0.0  # relative difference of the mean loss from exact settings, of the phase where it is the largest
    gradient: float = 0.0  # relative difference of a batch's gradient from that of exact settings, root mean square
    departure: float = 0.0
    noise: float = 0.0  # standard deviation of the gradient between batches, relative to it, with exact settings
    convolutions: bool = False
    now: Changes = field(default_factory=dict)
    gpu: bool = False  # whether it runs on a GPU

    @property
    def whole(self) -> float:
        """Seconds of all optimizer steps of the training."""
        return self.first + self.updates * self.seconds

    @property
    def departs(self) -> bool:
        """Return whether this training differs from that with exact settings; NaN counts as different."""
        return not self.departure <= TOLERANCE


@dataclass(frozen=True)
class Tried:
    """A trial: the change, the result, and the verdict."""

    changes: Changes  # of the settings in params.yaml
    label: str  # of the last change
    result: Result
    verdict: str


@dataclass(frozen=True)
class Tuned:
    """All trials of a training, in order."""

    stage: str
    tried: list[Tried]

    @property
    def why(self) -> str:
        """Why the training was not tried; "" if it was."""
        return self.tried[0].result.why

    @property
    def taken(self) -> Tried:
        """The best settings."""
        return [each for each in self.tried if each.verdict in ("", "taken")][-1]

    @property
    def changes(self) -> Changes:
        """The accepted changes to params.yaml."""
        now = self.tried[0].result.now
        return {key: value for key, value in self.taken.changes.items() if now[key] != value}


Attempt = Callable[[Changes | None], Result]  # with changes of params.yaml; None: only report its settings


def search(attempt: Attempt, cores: int, keys: Sequence[str] = KEYS) -> Iterator[Tried]:
    """Yield each trial: exact settings, those of params.yaml, then one change after another.

    A change that is faster twice and does not depart is kept, and the next changes are tried on top of it.

    `attempt` trains for some optimizer steps, the first time with exact settings. Only `keys` are tried.
    """
    current = attempt(None)
    exact = current if current.why else attempt(EXACT)
    if exact.why:
        yield Tried(EXACT, "exact", exact, f"cannot run: {exact.why}")
        return
    now, exact = current.now, replace(exact, now=current.now)
    plain = all(now[key] == value for key, value in EXACT.items())
    yield Tried(EXACT, AS_IT_IS if plain else "exact", exact, "")
    best, accepted = exact, dict[str, Any]()
    if not plain:
        best = attempt({})
        verdict = f"cannot run: {best.why}" if best.why else "departs" if best.departs else ""
        yield Tried({}, AS_IT_IS, best, verdict)
        if verdict:
            best, accepted = exact, {key: value for key, value in EXACT.items() if now[key] != value}
    for key, values in _options(exact, now, cores):
        for value in values if key in keys else ():
            if value == accepted.get(key, now[key]):
                continue
            changes = {**accepted, key: value}
            if key == "compile" and value and best.whole < COMPILES:
                short = f"not tried: the training is shorter than {COMPILES / 60:g} min"
                yield Tried(changes, label(key, value), Result(why=short), short)
                continue
            result = attempt(changes)
            verdict = _verdict(result, best)
            if verdict == "taken":
                best, result, verdict = _again(attempt, (accepted, best), (changes, result))
            yield Tried(changes, label(key, value), result, verdict)
            if verdict == "taken":
                best, accepted = result, changes
            elif key == "threads" and value > accepted.get(key, now[key]):
                break  # more will not be faster either


def _options(exact: Result, now: Changes, cores: int) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield the keys to try, in order, with their values."""
    if not exact.gpu:
        most = max(1, cores // now["processes"])
        yield "threads", sorted({most, *(1 << power for power in range(most.bit_length()))})
    yield "precision", ("fp32", "bf16")
    if exact.gpu:
        yield "tf32", (False, True)
    if exact.convolutions:
        yield "channels_last", (False, True)
    yield "compile", (False, True)


def _verdict(result: Result, best: Result) -> str:
    if result.why:
        return f"cannot run: {result.why}"
    if result.departs:
        return "departs"
    return "taken" if result.whole < PAYS * best.whole else "not faster"


def _again(attempt: Attempt, best: tuple[Changes, Result], other: tuple[Changes, Result]) -> tuple[Result, Result, str]:
    """Measure both again, since some changes are faster by chance; return the mean times and the verdict."""
    means, wholes = [], []
    for changes, before in (best, other):
        repeated = attempt(changes)
        if repeated.why:
            return best[1], other[1], "not faster"
        # Compiled code is cached, so only the first run measures the time to compile.
        repeated = replace(repeated, first=before.first) if changes.get("compile") else repeated
        wholes.append(repeated.whole)
        seconds, first = (before.seconds + repeated.seconds) / 2, min(before.first, repeated.first)
        means.append(replace(before, seconds=seconds, first=first))
    return means[0], means[1], "taken" if wholes[1] < PAYS * wholes[0] else "not faster when repeated"


def label(key: str, value: Any) -> str:
    """Return the name of a change in the table."""
    return f"{key}: {shown(value)}"


def key_of(name: str, key: str, params: Mapping[str, Any]) -> str:
    """Return the dotted key of params.yaml that sets a value of a training.

    `name` is a stage, or one of its items (STAGE@ITEM); `params` is params.yaml without defaults.
    """
    stage, _, item = name.partition("@")
    if item and key in OWN_TRAINING:
        return f"{FOREACH[stage]}.{item}.training.{key}"
    section = params.get(stage) or {}
    kind = section.get("kind", section.get("source"))
    own = (section.get(kind) or {}).get("training") or {} if isinstance(kind, str) else {}
    return f"{stage}.{kind}.training.{key}" if key in own else f"{stage}.training.{key}"
