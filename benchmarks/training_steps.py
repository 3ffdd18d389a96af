"""What a training step takes beside the originals', in float32 and as `darkroom tune` sets it, at the same shapes.

The original packages are installed on demand from PyPI, by name, into `.venv.originals`, which sees what this
repository's environment holds, so that both run the same torch (tests/originals/environment.py). What is compared with
what: beside/. All train in one process with 2 threads, deterministic and with freed memory kept as our stages are
(darkroom/device.py), in turns of four steps, on the same images. A step of ours is an update of the real loop
(`TrainState`). With --tuned a third one takes turns: ours with the precision, memory layout and compilation that
`darkroom tune` takes here for a training of a million images.

Run it on a quiet machine: `.venv/bin/python benchmarks/training_steps.py [SYSTEM …] [--tuned] [--dit CLONE]`. Prints a
Markdown table; a ratio of 1 or more says that ours is not slower. It is the median of the turns' ratios. Where theirs
takes more FLOPs (matrix products, convolutions and attention, forward and backward), compare the two ratios.
"""

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests"), str(ROOT / "benchmarks")]

from beside import decoder, dit, tokenizers  # noqa: E402
from beside.comparison import THREADS, Comparison, Step  # noqa: E402

from originals.environment import make  # noqa: E402

STEPS = 4  # a turn: a gradient penalty that is due every fourth is in each
KEYS = ("precision", "channels_last", "compile")
SYSTEMS = ("dit", *tokenizers.COMPARISONS, *decoder.COMPARISONS)


def inside(kinds: list[str]) -> None:
    """Make the environment of the originals, with the packages of some kinds, and start this file again in it."""
    python = make(kinds)
    threads = {"OMP_NUM_THREADS": str(THREADS), "MKL_NUM_THREADS": str(THREADS)}
    os.execve(python, [str(python), *sys.argv], {**os.environ, **threads, "DARKROOM_ORIGINALS": "1"})


@contextlib.contextmanager
def places() -> Iterator[tuple[Any, Any]]:
    """Give the settings `run` and the folders of a training."""
    from darkroom.params.run import Run
    from darkroom.training.start import OutputPaths

    with tempfile.TemporaryDirectory() as folder:
        yield (
            Run(device="cpu", grid_every=0),
            OutputPaths(*(Path(folder) / name for name in ("state", "curves", "logs"))),
        )


@contextlib.contextmanager
def ours(comparison: Comparison, **changes: Any) -> Iterator[Step]:
    """Give an update of the loop, of `training.batch` images, with some settings."""
    from darkroom.training.loop import remaining_batches
    from darkroom.training.start import open_training

    with places() as (run, folders):
        trainer = open_training(comparison.recipe(), comparison.training.model_copy(update=changes), run, folders)
        batches = remaining_batches(trainer)
        yield lambda: trainer.step(next(batches))


def tuned(comparison: Comparison) -> dict[str, Any]:
    """Return the settings that `darkroom tune` takes."""
    from darkroom.tools.tune.search import Result, Tuned, search
    from darkroom.tools.tune.trial import Enough, Trial

    with tempfile.TemporaryDirectory() as folder:

        def attempt(changes: Any) -> Result:
            trial = Trial(None if changes is None else Path(folder) / "exact.pt")
            try:
                with places() as (run, folders):
                    training = comparison.training.model_copy(update=dict(changes or {}))
                    trial.train(comparison.recipe(), training, run, folders)
            except Enough:
                assert trial.result is not None
                return trial.result
            except Exception as error:  # as `attempt` of darkroom.tools.tune.trial does
                return Result(why=f"{type(error).__name__}: {error}".splitlines()[0])

        found = Tuned("", list(search(attempt, THREADS, KEYS)))
    for each in found.tried:
        print(each.label, f"{each.result.seconds:.3f} s", f"{each.result.departure:.3f}", each.verdict, sep="; ")
    return dict(found.changes)


def seconds(step: Step) -> float:
    """Return what a step takes, the mean of a turn."""
    began = time.perf_counter()
    for _ in range(STEPS):
        step()
    return (time.perf_counter() - began) / STEPS


def flops(step: Step) -> int:
    """Return the FLOPs of a turn."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        for _ in range(STEPS):
            step()
    return int(counter.get_total_flops())


def row(comparison: Comparison, turns: int, with_tuned: bool) -> str:
    """Return a line of the table."""
    changes = tuned(comparison) if with_tuned else {}
    with contextlib.ExitStack() as stack:
        steps = [comparison.theirs, stack.enter_context(ours(comparison))]
        more = flops(steps[0]) / flops(steps[1])
        if changes:
            steps.append(stack.enter_context(ours(comparison, **changes)))
        taken = [[seconds(step) for step in steps] for _ in range(1 + turns)][1:]
    cells = [comparison.label, f"{more:.2f}", f"{1e3 * statistics.median(each[0] for each in taken):.0f}"]
    for at in range(1, len(steps)):
        cells.append(f"{1e3 * statistics.median(each[at] for each in taken):.0f}")
        cells.append(f"{statistics.median(each[0] / each[at] for each in taken):.2f}")
    if with_tuned:
        cells += ["", "", "nothing"] if not changes else [", ".join(f"{k}: {v}" for k, v in changes.items())]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Compare the steps of some systems, in turns, and print a table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("systems", nargs="*", help=f"of {', '.join(SYSTEMS)}; all of them", metavar="SYSTEM")
    options.add_argument("--tuned", action="store_true", help="also as `darkroom tune` sets it, some minutes each")
    options.add_argument("--dit", type=Path, metavar="CLONE", help="a clone of the repository facebookresearch/DiT")
    options.add_argument("--turns", type=int, default=15)
    options.add_argument("--only", type=int, help="the comparison of this number alone, from 0, of each system")
    args = options.parse_args()
    if unknown := set(args.systems) - set(SYSTEMS):
        options.error(f"unknown: {', '.join(sorted(unknown))}")
    chosen = args.systems or list(SYSTEMS)
    clone = args.dit and args.dit.resolve()
    known = {"dit": dit.comparisons(clone), **tokenizers.COMPARISONS, **decoder.COMPARISONS}
    if "DARKROOM_ORIGINALS" not in os.environ:
        inside(chosen)
    os.chdir(ROOT)
    import torch

    from darkroom.device import set_up_device

    set_up_device(THREADS, "cpu")
    head = "| a training step, ms | FLOPs, theirs / ours | theirs | ours | theirs / ours |"
    head += " as tuned | theirs / as tuned | what `tune` takes |" if args.tuned else ""
    print(head, "|---" * (head.count("|") - 1) + "|", sep="\n")
    for system in chosen:
        for number, compare in enumerate(known[system]):
            if args.only in (None, number):
                torch.manual_seed(0)
                with contextlib.redirect_stdout(sys.stderr):
                    found = row(compare(), args.turns, args.tuned)
                print(found, flush=True)


if __name__ == "__main__":
    main()
