"""The folder of a sweep, and the clone of each of its points.

A point is a clone of this repository with its own params.yaml and outputs. It shares git's objects, DVC's cache and the
run cache, so that what a point has in common with another, or with this checkout, is not computed again. Outputs are
links into the cache where the disk has links.
"""

import configparser
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from darkroom.artifacts.atomic import write_bytes
from darkroom.dag.history import RUNS, events
from darkroom.dag.repo import cache_folder, override
from darkroom.errors import DarkroomError
from darkroom.params.section import NO_FILE, PARAMS
from darkroom.params.stage import read_yaml
from darkroom.tools.compare.revisions import experiments
from darkroom.tools.sweep.points import Point

SWEEPS = Path(".darkroom/sweeps")
_FILE, _CHANGES, _READY = "sweep.json", "changes.diff", ".darkroom/ready"
_BEFORE = RUNS.with_stem("before")  # the history of this checkout


def git(*arguments: str, folder: Path = Path()) -> str:
    """Return the output of git in a folder. Raises DarkroomError with what it says."""
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True)
    if done.returncode:
        raise DarkroomError(f"git {arguments[0]} in {folder.resolve()}: {done.stderr.strip() or done.returncode}")
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
        DarkroomError: the name is in use, or git knows no commit.
    """
    sweep = Sweep(name, git("rev-parse", "HEAD").strip(), list(points))
    if sweep.folder.exists() or sweep.saved:
        raise DarkroomError(f"there is a sweep or an experiment named {name}: choose another name.")
    git("check-ref-format", f"refs/exps/{name}-1")
    sweep.folder.mkdir(parents=True)
    write_bytes(sweep.folder / _CHANGES, git("diff", "--binary", "HEAD").encode())
    write_bytes(sweep.folder / _FILE, json.dumps(asdict(sweep), indent=1).encode())
    return sweep


def opened(name: str) -> Sweep:
    """Return a sweep that was created before. Raises DarkroomError if there is none."""
    try:
        return Sweep(**json.loads((SWEEPS / name / _FILE).read_text()))
    except FileNotFoundError:
        names = ", ".join(sorted(path.parent.name for path in SWEEPS.glob(f"*/{_FILE}"))) or "none"
        raise DarkroomError(f"there is no sweep {name}; here are: {names}. Begin one with -S KEY=A,B.") from None


def prepare(sweep: Sweep, name: str) -> Path:
    """Return the clone of a point, which is made now unless it is complete.

    Raises:
        DarkroomError: git or DVC fails, or an override names a key that params.yaml does not have.
    """
    folder = sweep.folder / name
    if (folder / _READY).is_file():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    git("clone", "--quiet", "--shared", "--no-checkout", str(Path.cwd()), str(folder))
    git("checkout", "--quiet", "--detach", sweep.commit, folder=folder)
    if (changes := (sweep.folder / _CHANGES).resolve()).stat().st_size:
        git("apply", "--whitespace=nowarn", str(changes), folder=folder)
    _configure(folder)
    override(folder / PARAMS, sweep.runs[name])
    _link_data(folder)
    if RUNS.is_file():  # how long stages take
        (folder / RUNS).parent.mkdir(exist_ok=True)
        for copy in (RUNS, _BEFORE):
            shutil.copy(RUNS, folder / copy)
    checkout = [sys.executable, "-m", "dvc", "checkout", "--quiet", "--force", "--allow-missing"]
    subprocess.run(checkout, cwd=folder, check=False, stderr=subprocess.DEVNULL)  # what the cache lacks is stale
    (folder / _READY).parent.mkdir(exist_ok=True)
    (folder / _READY).touch()
    return folder


def _configure(folder: Path) -> None:
    """Write DVC's settings of a clone: those of this checkout, and its cache."""
    settings = configparser.ConfigParser(strict=False, interpolation=None, allow_no_value=True)
    settings.read(".dvc/config.local")
    cache = {"dir": str(cache_folder().parent.parent), "type": '"reflink,hardlink,symlink,copy"'}
    settings["cache"] = {**dict(settings["cache"] if settings.has_section("cache") else {}), **cache}
    with (folder / ".dvc/config.local").open("w") as file:
        settings.write(file)


def _link_data(folder: Path) -> None:
    """Link the images of this checkout that git does not have into a clone."""
    for part in read_yaml(folder / PARAMS).get("parts", {}).values():
        for path in (Path(part.get("path", NO_FILE)), Path(part.get("embeddings", NO_FILE))):
            if not path.is_absolute() and path.exists() and not (folder / path).exists():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).symlink_to(path.resolve())


def spent(folder: Path) -> float:
    """Return the seconds of the stages that ran in a point's clone; those it shares with earlier points are theirs."""
    runs = [event for event in events(folder / RUNS) if event.get("event") == "end"]
    before = sum(event.get("event") == "end" for event in events(folder / _BEFORE))
    return float(sum(event.get("seconds", 0.0) for event in runs[before:]))
