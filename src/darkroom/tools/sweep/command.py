"""`darkroom sweep`: run the points of a search over parameters, and show their scores."""

import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from darkroom.artifacts.atomic import write_bytes
from darkroom.check.check import check
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.stage import read_yaml
from darkroom.tools import command
from darkroom.tools.compare.grouped import GROUPED, as_text, grouped
from darkroom.tools.cores import core_count
from darkroom.tools.sweep.folders import Sweep, create, opened, prepare, spent
from darkroom.tools.sweep.points import grid
from darkroom.tools.sweep.points import table as rows_of

_SNAKEFILE, _PROFILE = Path("workflow/sweep.smk"), Path("profiles/sweep")


@command("Train", "sweep", "Run every combination of several values of parameters, and compare their scores.")
def sweep(
    name: Annotated[str, Argument(help="name of the sweep; its experiments are NAME-1, NAME-2, …")],
    overrides: Annotated[
        list[str] | None, Option("--set-param", "-S", metavar="KEY=A,B", help="values of a key; also range() and log()")
    ] = None,
    file: Annotated[Path | None, Option(help="a CSV file with a point per line, and keys as its first line")] = None,
    sample: Annotated[int | None, Option("--random", metavar="N", min=1, help="draw N of the points at random")] = None,
    cores: Annotated[str, Option(help="cores for Snakemake")] = "all",
    profile: Annotated[str | None, Option(help="a profile of Snakemake, for a cluster")] = None,
    show: Annotated[bool, Option("--show", help="show the scores of the points so far, and run nothing")] = False,
) -> Iterator[str]:
    """Yield lines for the terminal: the points, then their scores. Without `-S` and `--file` a sweep continues.

    Raises:
        DarkroomError: an override or a point is not valid, the name is in use, or a stage failed.
    """
    if overrides or file:
        points = [row + rest for row in (rows_of(file) if file else [[]]) for rest in grid(overrides or [])]
        if sample is not None:
            points = random.Random(0).sample(points, min(sample, len(points)))
        begun = create(name, points)
    else:
        begun = opened(name)
    if not show and (waiting := [point for point in begun.runs if point not in begun.saved]):
        yield f"{len(waiting)} of {len(begun.runs)} points to run in {begun.folder}."
        _run(begun, waiting, cores, profile)
    yield from _scores(begun)


def _run(begun: Sweep, waiting: Sequence[str], cores: str, profile: str | None) -> None:
    """Prepare the clones of the points, and run Snakemake over all of them.

    Raises:
        DarkroomError: a point is not valid, or Snakemake failed.
    """
    with ThreadPoolExecutor(core_count()) as pool:
        folders = list(pool.map(partial(prepare, begun), waiting))
    for point, folder in zip(waiting, folders, strict=True):
        try:
            check(read_yaml(folder / PARAMS))
        except DarkroomError as error:
            raise DarkroomError(f"{point} ({', '.join(begun.runs[point])}): {error}") from error
    words = ["--snakefile", str(_SNAKEFILE.resolve()), "--directory", str(begun.folder), "--cores", cores]
    words += ["--workflow-profile", str(_PROFILE.resolve())]
    if profile is not None:
        words += ["--profile", str(Path(profile).resolve())]
    words += ["--config", f"points={','.join(waiting)}"]
    engine = subprocess.Popen([sys.executable, "-m", "snakemake", *words])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Snakemake has it, too, and ends when its jobs have stopped
    signal.signal(signal.SIGTERM, lambda number, frame: engine.terminate())
    if engine.wait():
        raise DarkroomError(
            f"{len(begun.runs) - len(begun.saved)} points are not done: `darkroom sweep {begun.name}` continues, and "
            f"{begun.folder}/POINT/logs has their logs."
        )


def _scores(begun: Sweep) -> Iterator[str]:
    """Yield the table of the points that are done, and those that are not."""
    if saved := [point for point in begun.runs if point in begun.saved]:
        frame = grouped(saved, {point: spent(begun.folder / point) for point in saved})
        write_bytes(begun.folder / "scores.csv", frame.to_csv(index=False).encode())
        yield f"{as_text(frame).to_string(index=False)}\n\n{GROUPED}"
    if missing := [point for point in begun.runs if point not in saved]:
        yield f"Not done: {', '.join(missing)}."
