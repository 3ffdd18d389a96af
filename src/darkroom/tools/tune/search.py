"""Which settings a training is tried with, one change after another, and which of them are taken. Loads no torch."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Changes = Mapping[str, Any]  # of keys of `training` and of `run`

RUN_KEYS = ("micro_batch", "workers", "activation_checkpointing")  # of `run`, which all trainings share
KEYS = ("threads", "precision", "tf32", "channels_last", "compile", *RUN_KEYS)
EXACT: dict[str, Any] = {"precision": "fp32", "tf32": False, "compile": False, "channels_last": False}
PAYS = 0.97  # fraction of the time, below which a change is worth its line in params.yaml
SHARE = 0.1  # of the noise between batches: a gradient or a loss that departs further is another training
_SMALLEST = 8  # images of a micro-batch
_READERS = (1, 2)  # processes that read


@dataclass(frozen=True)
class Found:
    """What a training did with some settings.

    why: why it cannot run with them; "": it ran.
    updates: optimizer steps of the whole training.
    batch: images in one, of one process.
    seconds: of an optimizer step, with its reading.
    first: seconds that the first one takes more, as compiling does.
    memory: most bytes of the process, or of the GPU's tensors.
    loss, gradient: relative differences from exact settings, of the mean loss and of the gradient of one batch.
    loss_noise, gradient_noise: the same between one batch and another, with exact settings.
    convolutions, checkpoints, cuts: whether there are layers that know a memory layout, blocks whose activations may be
        computed again, and batches that may be cut.
    now: what params.yaml says of the keys that are tried.
    """

    why: str = ""
    updates: int = 0
    batch: int = 0
    seconds: float = 0.0
    first: float = 0.0
    memory: int = 0
    loss: float = 0.0
    gradient: float = 0.0
    loss_noise: float = 0.0
    gradient_noise: float = 0.0
    convolutions: bool = False
    checkpoints: bool = False
    cuts: bool = False
    now: Changes = field(default_factory=dict)

    @property
    def whole(self) -> float:
        """Seconds of all optimizer steps of the training."""
        return self.first + self.updates * self.seconds

    def departs(self, exact: "Found") -> bool:
        """Return whether loss or gradient differ from those of exact settings by more than a part of their noise."""
        return self.gradient > SHARE * exact.gradient_noise or self.loss > SHARE * exact.loss_noise


@dataclass(frozen=True)
class Tried:
    """A setting that was tried: what was changed, what was found, and what to make of it.

    changes: beside the settings of params.yaml.
    label: of the last change.
    """

    changes: Changes
    label: str
    found: Found
    verdict: str


Attempt = Callable[[Changes], Found]


def search(attempt: Attempt, cores: int, gpu: bool) -> Iterator[Tried]:
    """Yield what was tried, as it was: exact settings, those of params.yaml, and one change after another.

    A change that is quicker and does not depart is kept, and the next ones are tried beside it.

    Args:
        attempt: trains for some optimizer steps with changes beside params.yaml, the first time with exact settings.
        cores: CPU threads that there are.
        gpu: whether networks run on a GPU.
    """
    exact = attempt(EXACT)
    if exact.why:
        yield Tried(EXACT, "exact", exact, f"cannot run: {exact.why}")
        return
    now = exact.now
    plain = all(now[key] == value for key, value in EXACT.items())
    yield Tried(EXACT, "as it is" if plain else "exact", exact, "")
    best, kept = exact, dict[str, Any]()
    if not plain:
        best = attempt({})
        verdict = f"cannot run: {best.why}" if best.why else "departs" if best.departs(exact) else ""
        yield Tried({}, "as it is", best, verdict)
        if verdict:
            best, kept = exact, {key: value for key, value in EXACT.items() if now[key] != value}
    for key, values in _options(exact, now, cores, gpu):
        for value in values:
            if value == kept.get(key, now[key]):
                continue
            found = attempt({**kept, key: value})
            tried = Tried({**kept, key: value}, label(key, value), found, _verdict(found, exact, best))
            yield tried
            if tried.verdict == "taken":
                best, kept = found, dict(tried.changes)
            elif key == "threads" and value > kept.get(key, now[key]):
                break  # nor will still more be


def _options(exact: Found, now: Changes, cores: int, gpu: bool) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield the keys that are tried, in their order, and their values."""
    if not gpu:
        yield "threads", sorted({cores, *(1 << power for power in range(cores.bit_length()))})
    yield "precision", ("fp32", "bf16")
    if gpu:
        yield "tf32", (True,)
    if exact.convolutions:
        yield "channels_last", (not now["channels_last"],)
    yield "compile", (not now["compile"],)
    if exact.cuts:
        halves = [exact.batch >> power for power in (1, 2) if exact.batch >> power >= _SMALLEST]
        yield "micro_batch", (None, *halves)
    yield "workers", (0, *(readers for readers in _READERS if readers < max(2, cores)))
    if exact.checkpoints:
        yield "activation_checkpointing", (not now["activation_checkpointing"],)


def _verdict(found: Found, exact: Found, best: Found) -> str:
    if found.why:
        return f"cannot run: {found.why}"
    if found.departs(exact):
        return "departs"
    return "taken" if found.whole < PAYS * best.whole else "no quicker"


def label(key: str, value: Any) -> str:
    """Return a change in a few words."""
    if key == "threads":
        return f"{value} thread{'s' * (value > 1)}"
    if key == "precision":
        return str(value)
    words = key.replace("_", " ")
    if isinstance(value, bool):
        return words if value else f"no {words}"
    return f"{words} {'whole' if value is None else value}"
