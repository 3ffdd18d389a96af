"""`darkroom sweep`: run the points of a search over parameters, and show their scores."""

import json
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
from darkroom.dag.repo import cache_folder
from darkroom.errors import DarkroomError
from darkroom.processes.stopping import handling
from darkroom.tools import command
from darkroom.tools.compare.grouped import GROUPED, as_text, grouped
from darkroom.tools.cores import core_count
from darkroom.tools.sweep.folders import Sweep, create, opened, prepare, spent
from darkroom.tools.sweep.points import points

_PROFILES = Path("~/.config/snakemake").expanduser()  # where Snakemake finds them by name
_STOPPED = 128 + signal.SIGTERM  # exit code


@command("Train", "sweep", "Run every combination of several values of parameters, and compare their scores.")
def sweep(
    name: Annotated[str, Argument(help="name of the sweep; its experiments are NAME-1, NAME-2, …")],
    overrides: Annotated[
        list[str] | None,
        Option(
            "--set-param",
            "-S",
            metavar="KEY=A,B",
            help="values of a key; also range(1,9,2), without 9, and log(1e-4,1e-2,5)",
        ),
    ] = None,
    file: Annotated[Path | None, Option(help="a CSV file: keys in the first line, a point in each other")] = None,
    sample: Annotated[int | None, Option("--random", metavar="N", min=1, help="draw N of the points at random")] = None,
    cores: Annotated[str, Option(help="cores of this machine")] = "all",
    profile: Annotated[str | None, Option(help="a profile of Snakemake, for a cluster; also to continue")] = None,
    show: Annotated[bool, Option("--show", help="show the scores of the points so far, and run nothing")] = False,
) -> Iterator[str]:
    """Yield lines for the terminal: the points, then their scores. Without `-S` and `--file` a sweep continues.

    Raises:
        DarkroomError: an override or a point is not valid, the name is in use, or a stage failed.
    """
    if profile is not None and not any((base / profile).is_dir() for base in (Path(), _PROFILES)):
        raise DarkroomError(f"--profile {profile}: no such folder; `darkroom cluster` writes profiles/cluster.")
    if overrides or file:
        begun = create(name, points(overrides or [], file, sample))
    elif sample:
        raise DarkroomError("--random draws from the points of -S or --file: give one of them.")
    else:
        begun = opened(name)
    saved = begun.saved
    if not show and (waiting := [point for point in begun.runs if point not in saved]):
        yield f"{len(waiting)} of {len(begun.runs)} points to run in {begun.folder}."
        _run(begun, waiting, cores, profile)
    yield from _scores(begun)


def _run(begun: Sweep, waiting: Sequence[str], cores: str, profile: str | None) -> None:
    """Make the clones of points that have none, and run Snakemake over all of them, with the source of the first.

    Raises:
        DarkroomError: a clone cannot be made, or a stage failed.
        SystemExit: 143 after SIGTERM.
    """
    with ThreadPoolExecutor(core_count()) as pool:
        clones = list(pool.map(partial(prepare, begun, cache_folder().parent.parent), waiting))
    write_bytes(begun.folder / "waiting.json", json.dumps(waiting).encode())
    words = ["--snakefile", str(clones[0].resolve() / "workflow/sweep.smk"), "--directory", str(begun.folder)]
    words += ["--workflow-profile", str(clones[0].resolve() / "profiles/sweep")]
    if profile is None:
        words += ["--cores", cores, "--retries", "1"]
    else:
        words += ["--profile", str(Path(profile).resolve() if Path(profile).exists() else profile)]
    engine = subprocess.Popen([sys.executable, "-m", "snakemake", *words])
    stops: list[int] = []

    def stop(number: int, frame: object) -> None:
        stops.append(number)
        engine.terminate()

    # Ctrl-C reaches Snakemake, too, which ends when its jobs have stopped.
    with handling({signal.SIGINT: signal.SIG_IGN, signal.SIGTERM: stop}):
        failed = engine.wait()
    if stops:
        raise SystemExit(_STOPPED)
    if failed:
        again = f"darkroom sweep {begun.name}{f' --profile {profile}' * bool(profile)}"
        raise DarkroomError(
            f"{len(begun.runs.keys() - begun.saved)} points failed or did not run. `{again}` runs them again; "
            f"logs: {begun.folder}/POINT/logs."
        )


def _scores(begun: Sweep) -> Iterator[str]:
    """Yield the table of the points that are done, and those that are not."""
    saved = begun.saved
    if done := [point for point in begun.runs if point in saved]:
        frame = grouped(done, {point: spent(begun.folder / point) for point in done})
        write_bytes(begun.folder / "scores.csv", frame.to_csv(index=False).encode())
        yield f"{as_text(frame).to_string(index=False)}\n\n{GROUPED}"
    if missing := [point for point in begun.runs if point not in saved]:
        yield f"Not done: {', '.join(missing)}."
