"""DVC's experiments: exactly what depends on a parameter runs, and the difference shows."""

import json
import re
import time
from concurrent.futures import Future
from functools import partial

import pytest

from dag.sandbox import Sandbox, side_by_side

Stories = dict[str, Future[tuple[Sandbox, list[str]]]]


@pytest.fixture(scope="module")
def stories(committed: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Stories:
    """Copies in which experiments ran, and the bodies that ran there."""
    copies = {story: committed.copy(tmp_path_factory.mktemp("experiments") / "clone") for story in (deepen, queue)}
    return side_by_side({story.__name__: partial(story, sandbox) for story, sandbox in copies.items()})


@pytest.fixture(scope="module")
def deeper(stories: Stories) -> tuple[Sandbox, list[str]]:
    """A copy in which an experiment with a deeper model ran."""
    return stories["deepen"].result()


@pytest.fixture(scope="module")
def queued(stories: Stories) -> tuple[Sandbox, list[str]]:
    """A copy in which three titles were queued, the code was edited, and the queue ran."""
    return stories["queue"].result()


def deepen(sandbox: Sandbox) -> tuple[Sandbox, list[str]]:
    with sandbox.bodies() as ran:
        sandbox.dvc("exp", "run", "--name", "deeper", "-S", "train_generator.dit.model.depth=2")
    return sandbox, ran


def queue(sandbox: Sandbox) -> tuple[Sandbox, list[str]]:
    loop = sandbox.root / "src/darkroom/training/loop.py"
    loop.write_text(loop.read_text() + "\n\n# a comment that every training's module has now\n")
    sandbox.dvc("exp", "run", "--queue", "--name", "titled", "-S", "report.title=As queued")
    sandbox.dvc("exp", "run", "--queue", "-S", "report.title=Sunrise,Sunset")
    code = sandbox.root / "src/darkroom/stages/report.py"
    code.write_text(code.read_text() + "\nraise SystemExit('this was edited after queueing')\n")
    with sandbox.bodies() as ran:
        sandbox.dvc("queue", "start")
        deadline = time.monotonic() + 300
        while (status := sandbox.dvc("queue", "status")).count("Success") < 3:
            assert "Failed" not in status, status
            assert time.monotonic() < deadline, status
            time.sleep(1)
    code.write_text(code.read_text().partition("\nraise SystemExit")[0])
    return sandbox, ran


def test_only_what_depends_on_the_parameter_runs(deeper: tuple[Sandbox, list[str]]) -> None:
    assert deeper[1] == ["train_generator", "train_distilled", "sample_generator", "score_generator", "report"]


def test_the_difference_shows(deeper: tuple[Sandbox, list[str]]) -> None:
    sandbox, _ = deeper
    table = sandbox.dvc("exp", "show", "--md")
    assert "deeper" in table
    assert "train_generator.dit.model.depth" in table
    changed = json.loads(sandbox.dvc("metrics", "diff", "--json"))
    assert changed["metrics/generator.json"]["fd"]["diff"] != 0
    assert "metrics/tokenizer.json" not in changed
    assert "fd" in sandbox.dvc("metrics", "diff", "--md")


def test_a_sweep_shows_each_of_its_values(queued: tuple[Sandbox, list[str]]) -> None:
    table = queued[0].dvc("exp", "show", "--md", "--param-deps")
    assert "report.title" in table
    assert "Sunrise" in table and "Sunset" in table and "As queued" in table


def test_a_queued_experiment_runs_the_code_that_was_queued(queued: tuple[Sandbox, list[str]]) -> None:
    sandbox, ran = queued
    assert ran == [], "a queued experiment works in a copy of the repository"
    told = sandbox.dvc("queue", "logs", "titled")
    assert re.findall(r"Running stage '(.+)':", told) == ["code", "report"], "a comment retrains nothing there, either"
    sandbox.dvc("exp", "apply", "titled")
    assert "As queued" in (sandbox.root / "reports/index.html").read_text()
