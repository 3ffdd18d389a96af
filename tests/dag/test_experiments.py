"""DVC's experiments: exactly what depends on a parameter runs, and the difference shows."""

import json
import time
from pathlib import Path

import pytest

from dag.sandbox import Sandbox


@pytest.fixture(scope="module")
def deeper(committed: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> tuple[Sandbox, list[str]]:
    """A copy in which an experiment with a deeper model ran, and the bodies that ran."""
    sandbox = committed.copy(tmp_path_factory.mktemp("experiment") / "clone")
    with sandbox.bodies() as ran:
        sandbox.dvc("exp", "run", "--name", "deeper", "-S", "train_dit.model.depth=2")
    return sandbox, ran


def test_only_what_depends_on_the_parameter_runs(deeper: tuple[Sandbox, list[str]]) -> None:
    assert deeper[1] == ["train_dit", "sample_dit", "score_dit", "report"]


def test_the_difference_shows(deeper: tuple[Sandbox, list[str]]) -> None:
    sandbox, _ = deeper
    table = sandbox.dvc("exp", "show", "--md")
    assert "deeper" in table
    assert "train_dit.model.depth" in table
    changed = json.loads(sandbox.dvc("metrics", "diff", "--json"))
    assert changed["metrics/dit.json"]["fd"]["diff"] != 0
    assert "metrics/tokenizer.json" not in changed
    assert "fd" in sandbox.dvc("metrics", "diff", "--md")


def test_a_queued_experiment_runs_the_code_that_was_queued(fresh: Sandbox) -> None:
    fresh.dvc("exp", "run", "--queue", "--name", "titled", "-S", "report.title=As queued")
    code = fresh.root / "src/darkroom/stages/report.py"
    code.write_text(code.read_text() + "\nraise SystemExit('this was edited after queueing')\n")
    with fresh.bodies() as ran:
        fresh.dvc("queue", "start")
        deadline = time.monotonic() + 180
        while "Success" not in (status := fresh.dvc("queue", "status")):
            assert "Failed" not in status, status
            assert time.monotonic() < deadline, status
            time.sleep(1)
    assert ran == [], "a queued experiment works in a copy of the repository"
    fresh.run("git", "checkout", "--quiet", "--", str(Path("src")))
    fresh.dvc("exp", "apply", "titled")
    assert "As queued" in (fresh.root / "reports/index.html").read_text()
