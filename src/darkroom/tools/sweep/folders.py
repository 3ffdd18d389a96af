"""The folder of a sweep, and the clone of each of its points.

A point is a clone of this repository with its own params.yaml and outputs. It shares git's objects, DVC's cache and the
run cache, so that what a point has in common with another, or with this checkout, is not computed again. Outputs are
links into the cache where the disk has links.
"""

import configparser
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from darkroom.artifacts.atomic import write_bytes
from darkroom.check.check import check
from darkroom.dag.history import RUNS, events
from darkroom.dag.repo import override
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.stage import DVC, OUTPUTS, read_yaml, related
from darkroom.tools.compare.revisions import experiments
from darkroom.tools.compare.revisions import git as asked
from darkroom.tools.places import declared
from darkroom.tools.sweep.points import Point

SWEEPS = Path(".darkroom/sweeps")
_FILE, _CHANGES, _READY = "sweep.json", "changes.diff", ".darkroom/ready"
_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]*"
_DIFF = "diff --binary --no-color --no-ext-diff --no-textconv --src-prefix=a/ --dst-prefix=b/ HEAD"
_BEFORE = RUNS.with_stem("before")  # the history of this checkout


def git(*arguments: str, folder: Path = Path()) -> bytes:
    """Return the output of git in a folder. Raises DarkroomError with what it says."""
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True)
    if done.returncode:
        text = done.stderr.decode(errors="replace").strip() or done.returncode
        raise DarkroomError(f"git {arguments[0]} in {folder.resolve()}: {text}")
    return done.stdout


@dataclass(frozen=True)
class Sweep:
    """A sweep of this checkout.

    name: that of its folder; its points are the experiments NAME-1, NAME-2, ….
    commit: the commit that its points start from, with the uncommitted changes of that time.
    points: the overrides of each point.
    """

    name: str
    commit: str
    points: list[Point]

    @property
    def folder(self) -> Path:
        """The folder of the sweep."""
        return SWEEPS / self.name

    @property
    def runs(self) -> dict[str, Point]:
        """The overrides of each point, by the name of its experiment."""
        return {f"{self.name}-{number}": point for number, point in enumerate(self.points, 1)}

    @property
    def saved(self) -> set[str]:
        """The points that are experiments of this repository."""
        return self.runs.keys() & {name for baseline, name, _ in experiments() if baseline == self.commit}


def create(name: str, points: Sequence[Point]) -> Sweep:
    """Write the folder of a new sweep of the current commit and the changes of tracked files.

    Raises:
        DarkroomError: the name is in use or not valid, git knows no commit, or a point is not valid.
    """
    if not re.fullmatch(_NAME, name):
        raise DarkroomError(f"`{name}` is not a valid name for a sweep: use letters, digits, `_` and `-`.")
    sweep = Sweep(name, git("rev-parse", "HEAD").decode().strip(), list(points))
    if (sweep.folder / _FILE).exists():
        raise DarkroomError(f"the sweep `{name}` exists: `darkroom sweep {name}` continues it; choose another name.")
    known = {experiment for _, experiment, _ in experiments()}
    if used := [run for run in sweep.runs if run in known or asked("rev-parse", "--verify", "--quiet", run)]:
        raise DarkroomError(f"`{used[0]}` is already an experiment, branch or tag: choose another name for the sweep.")
    with TemporaryDirectory() as folder:
        copy = Path(folder) / PARAMS
        for run, point in sweep.runs.items():
            shutil.copy(PARAMS, copy)
            override(copy, point)
            try:
                check(read_yaml(copy))
            except DarkroomError as error:
                raise DarkroomError(f"{run} ({', '.join(point)}): {error}") from error
    sweep.folder.mkdir(parents=True, exist_ok=True)
    write_bytes(sweep.folder / _CHANGES, git(*_DIFF.split()))
    write_bytes(sweep.folder / _FILE, json.dumps(asdict(sweep), indent=1).encode())
    return sweep


def opened(name: str) -> Sweep:
    """Return a sweep that was created before. Raises DarkroomError if there is none."""
    try:
        return Sweep(**json.loads((SWEEPS / name / _FILE).read_text()))
    except FileNotFoundError:
        names = ", ".join(sorted(path.parent.name for path in SWEEPS.glob(f"*/{_FILE}"))) or "none"
        raise DarkroomError(f"no sweep is named `{name}`. Existing: {names}. To start one, add -S KEY=A,B.") from None


def prepare(sweep: Sweep, cache: Path, name: str) -> Path:
    """Return the clone of a point, which is made now unless it is complete; `cache` is the folder of DVC's cache.

    Raises:
        DarkroomError: git fails.
    """
    folder = sweep.folder / name
    if (folder / _READY).is_file():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    git("clone", "--quiet", "--shared", "--no-checkout", str(Path.cwd()), str(folder))
    git("checkout", "--quiet", "--detach", sweep.commit, folder=folder)
    if (changes := (sweep.folder / _CHANGES).resolve()).stat().st_size:
        git("apply", "--whitespace=nowarn", str(changes), folder=folder)
    settings = configparser.ConfigParser(strict=False, interpolation=None, allow_no_value=True)
    settings.read(".dvc/config.local")
    own = dict(settings["cache"]) if settings.has_section("cache") else {}
    settings["cache"] = {**own, "dir": f'"{cache.resolve()}"', "type": '"reflink,hardlink,symlink,copy"'}
    with (folder / ".dvc/config.local").open("w") as file:
        settings.write(file)
    override(folder / PARAMS, sweep.runs[name])
    if RUNS.is_file():  # how long stages take
        (folder / RUNS).parent.mkdir(exist_ok=True)
        for copy in (RUNS, _BEFORE):
            shutil.copy(RUNS, folder / copy)
    # The outputs of stages alone: it would also restore data under `dvc add`, which a link leads to.
    checkout = [sys.executable, "-m", "dvc", "checkout", "--quiet", "--force", "--allow-missing", str(DVC)]
    subprocess.run(checkout, cwd=folder, check=False, stderr=subprocess.DEVNULL)  # what the cache lacks is stale
    _link_inputs(folder)
    (folder / _READY).parent.mkdir(exist_ok=True)
    (folder / _READY).touch()
    return folder


def _link_inputs(folder: Path) -> None:
    """Link the data and weights of this checkout that stages read, and git does not track, into a clone."""
    outs = declared(OUTPUTS, folder)
    for dep in sorted(declared(["deps"], folder)):
        path = Path(dep)
        made = any(related(dep, out) for out in outs)
        if made or path.is_absolute() or not path.exists() or (folder / path).exists():
            continue
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):  # a path outside of the clone, which another point has linked
            (folder / path).symlink_to(path.resolve())
        with (folder / ".git/info/exclude").open("a") as file:  # no part of the experiment
            file.write(f"/{dep}\n")


def spent(folder: Path) -> float:
    """Return the seconds of the stages that ran in a point's clone; those it shares with earlier points are theirs."""
    runs = [event for event in events(folder / RUNS) if event.get("event") == "end"]
    before = sum(event.get("event") == "end" for event in events(folder / _BEFORE))
    return float(sum(event.get("seconds", 0.0) for event in runs[before:]))
