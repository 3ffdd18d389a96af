"""Clones of the working tree in which both engines really run: the real DAG, tiny, or a toy through the same code."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import yaml

from helpers import digits

SOURCE = Path(__file__).resolve().parents[2]
TINY = Path(__file__).with_name("tiny.yaml")
TOY = Path(__file__).with_name("toy")
NOTHING = "Nothing to be done"
ENGINES = {"dvc": ("dvc", "repro"), "snakemake": ("snakemake", "--cores", "2")}
DARKROOM = ("python", "-m", "darkroom")
RESULTS = ("cards/", "metrics/", "dvc.lock")  # what a run leaves for git
ENGINE_FILES = (".dvc", ".git", "Snakefile", "data/none", "profiles/", "src/darkroom/", "workflow/")
# The stages of the toy; their bodies and `dag.yaml`, its dvc.yaml, lie in the folder `toy`.
TOY_STAGES = """
_MODULE = "darkroom.stages."
STAGES = {name: STAGES[name] for name in ("code", "ingest")} | {
    "train_extractor": Stage(f"{_MODULE}train_extractor:Params", trains=True),
    "score_generator": Stage(f"{_MODULE}score_generator:Params", networks=False),
    "report": Stage(f"{_MODULE}report:Params", networks=False),
}
"""
TOY_FITS = "\nFITS = ()  # what the sections of the real DAG must do to fit each other\n"


def environment(home: Path) -> dict[str, str]:
    """Return an environment with this Python's programs, a git identity, and no setting of the person's own.

    Nothing can be written in HOME, as in a container.
    """
    own = ("DVC_", "GIT_", "PYTHON", "XDG_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    return inherited | {
        "HOME": "/proc/none",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "DVC_SITE_CACHE_DIR": str(home / "site"),
        "DVC_GLOBAL_CONFIG_DIR": str(home / "global"),
        "DVC_SYSTEM_CONFIG_DIR": str(home / "system"),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{who}_NAME": "Tester" for who in ("AUTHOR", "COMMITTER")},
        **{f"GIT_{who}_EMAIL": "tester@example.org" for who in ("AUTHOR", "COMMITTER")},
    }


def overlay(values: dict[str, Any], changes: dict[str, Any]) -> None:
    """Lay nested `changes` over `values`, in place; a key that the schema does not have is refused by what reads it."""
    for key, change in changes.items():
        if isinstance(change, dict) and key != "parts":
            overlay(values.setdefault(key, {}), change)
        else:
            values[key] = change


def wait_until(true: Callable[[], bool], seconds: float = 300, why: Callable[[], str] = lambda: "") -> None:
    """Wait until something is true, and fail after so many seconds."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, why()
        time.sleep(0.02)


def _works(number: int, session: int) -> bool:
    """Return whether a process of a session goes on; one that nobody has waited for does not."""
    try:
        return os.getsid(number) == session and psutil.Process(number).status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, PermissionError, psutil.NoSuchProcess):
        return False


def copy_source(root: Path, chosen: Callable[[str], bool]) -> None:
    """Copy the chosen files of the working tree that git tracks or would track."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=SOURCE, capture_output=True, check=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (SOURCE / name).is_file() and chosen(name):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(SOURCE / name, root / name)


class Sandbox:
    """A repository of its own under `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        # As in a clone with an environment of its own, `dvc` and `snakemake` run the source of this one.
        self.environment = environment(root.parent) | {"PYTHONPATH": str(root / "src")}

    @classmethod
    def clone(cls, root: Path) -> "Sandbox":
        """Copy what git tracks or would track, lay the preset `digits` and the tiny settings over it, and commit."""
        # Without results of the default run: with them, scores would be there before any scorer ran.
        copy_source(root, lambda name: not name.startswith(RESULTS))
        (root / "params.yaml").write_text(digits())
        sandbox = cls(root)
        sandbox.edit(yaml.safe_load(TINY.read_text()))
        return sandbox.commit_first()

    @classmethod
    def clone_toy(cls, root: Path) -> "Sandbox":
        """Copy the engines' side of the working tree, lay the toy DAG over it, and commit."""
        copy_source(root, lambda name: name.startswith(ENGINE_FILES))
        shutil.copytree(TOY, root, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        (root / "dag.yaml").rename(root / "dvc.yaml")  # DVC would take one in this repository for a part of its DAG
        sandbox = cls(root)
        sandbox.replace("src/darkroom/dag/stages.py", "FOREACH = {", f"{TOY_STAGES}\nFOREACH = {{")
        check = root / "src/darkroom/check/check.py"
        check.write_text(check.read_text() + TOY_FITS)
        return sandbox.commit_first()

    def commit_first(self) -> "Sandbox":
        """Make the repository of git, with one commit."""
        self.run("git", "init", "--quiet", "--initial-branch", "main")
        self.commit("first")
        return self

    def copy(self, root: Path) -> "Sandbox":
        """Return a copy with everything in it: artifacts, DVC's cache, Snakemake's records."""
        shutil.copytree(self.root, root, symlinks=True)
        return Sandbox(root)

    def run(self, *command: str) -> str:
        """Run a command in the root; return what it printed, and fail with that where it fails."""
        done = self.attempt(*command)
        assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-6000:]}"
        return done.stdout

    def fails(self, *command: str) -> str:
        """Run a command that must fail, without a traceback; return what it printed."""
        done = self.attempt(*command)
        assert done.returncode != 0 and "Traceback" not in done.stdout, f"{' '.join(command)}:\n{done.stdout[-6000:]}"
        return done.stdout

    def attempt(self, *command: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command that may fail."""
        output: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.run(command, cwd=self.root, env=self.environment, **output, **options)

    def dvc(self, *arguments: str) -> str:
        """Run DVC."""
        return self.run("dvc", *arguments)

    def snakemake(self, *arguments: str) -> str:
        """Run Snakemake with two cores."""
        return self.run("snakemake", "--cores", "2", *arguments)

    def darkroom(self, *arguments: str) -> str:
        """Run Darkroom of this clone."""
        return self.run(*DARKROOM, *arguments)

    @contextmanager
    def start(self, *command: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start a command in a session of its own, for the block to end; if the block fails, all of it is killed.

        After the block none of its processes works any more: a killed one takes a moment to be gone.
        """
        nowhere = subprocess.DEVNULL
        run = subprocess.Popen(
            command, cwd=self.root, env=self.environment, stdout=nowhere, stderr=nowhere, start_new_session=True
        )
        try:
            yield run
            run.wait(timeout=300)
            wait_until(lambda: not any(_works(process.pid, run.pid) for process in psutil.process_iter()), 60)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
            raise

    @contextmanager
    def held(self, place: str, *command: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start a command and hold a stage of the toy at a place of its body, for the block, which may kill it."""
        hold = self.root / ".darkroom/hold" / place
        hold.parent.mkdir(parents=True, exist_ok=True)
        hold.touch()
        with self.start(*command) as run:
            reached = hold.with_name(f"{place} reached")
            wait_until(lambda: reached.exists() or run.poll() is not None)
            assert run.poll() is None, "the run ended before"
            yield run
            hold.unlink()
            reached.unlink()

    def commit(self, message: str) -> None:
        """Commit everything that git does not ignore."""
        self.run("git", "add", "--all")
        self.run("git", "commit", "--quiet", "--message", message)

    def edit(self, changes: dict[str, Any]) -> None:
        """Lay nested changes over params.yaml."""
        path = self.root / "params.yaml"
        values = yaml.safe_load(path.read_text())
        overlay(values, changes)
        path.write_text(yaml.safe_dump(values, sort_keys=False))

    def replace(self, path: str, old: str, new: str) -> None:
        """Replace a text of a file that occurs once."""
        text = (self.root / path).read_text()
        assert text.count(old) == 1, f"{path} has {text.count(old)} times {old!r}"
        (self.root / path).write_text(text.replace(old, new))

    def history(self) -> list[dict[str, Any]]:
        """Return the lines of logs/runs.jsonl: the beginning and the end of each stage body that really ran."""
        path = self.root / "logs/runs.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @contextmanager
    def bodies(self) -> Iterator[list[str]]:
        """Yield a list that holds, after the block, the stages whose bodies began in it, in order.

        Without `code`, which hashes the source in a second and runs whenever a file of it changed.
        """
        before, ran = len(self.history()), list[str]()
        yield ran
        lines = self.history()[before:]
        ran += [line["stage"] for line in lines if line["event"] == "start" and line["stage"] != "code"]

    def ran(self, *command: str) -> list[str]:
        """Run a command; return the stages whose bodies ran."""
        with self.bodies() as ran:
            self.run(*command)
        return ran

    def log(self, stage: str) -> str:
        """Return the log of a stage that runs once."""
        path = self.root / f"logs/{stage}.log"
        return path.read_text() if path.exists() else ""

    def stages(self) -> list[str]:
        """Return the names of all stages, one for each part where there are parts."""
        return self.dvc("stage", "list", "--name-only").split()

    def stale(self, *stages: str) -> set[str]:
        """Return the stages, of those named or of all, that `dvc status` does not find up to date."""
        return set(json.loads(self.dvc("--wait-for-lock", "status", "--json", *stages)))

    def assert_nothing_to_do(self) -> None:
        """Assert that both engines find everything up to date, and that no body runs."""
        with self.bodies() as ran:
            assert self.stale() == set()
            assert NOTHING in self.snakemake("--dry-run")
            self.dvc("repro")
        assert ran == []

    def lock(self) -> dict[str, Any]:
        """Return what dvc.lock says of each stage."""
        return dict(yaml.safe_load((self.root / "dvc.lock").read_text())["stages"])

    def hashes(self, *stages: str) -> dict[str, str]:
        """Return the SHA-256 of every file that stages, of those named or of all, declare as output, by its path."""
        entries = [entry for name, entry in self.lock().items() if not stages or name in stages]
        paths = [self.root / out["path"] for entry in entries for out in entry["outs"]]
        files = [file for path in paths for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file()]
        return {
            str(file.relative_to(self.root)): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in files
            if file.name != ".snakemake_timestamp"
        }
