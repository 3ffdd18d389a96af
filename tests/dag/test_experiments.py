"""DVC's experiments: exactly what depends on a parameter runs, and the difference shows."""

import json
import re
import time

import pytest

from dag.sandbox import Sandbox


@pytest.mark.slow
def test_an_experiment_runs_what_depends_on_it_and_the_difference_shows(toy: Sandbox) -> None:
    experiment = ("dvc", "exp", "run", "--name", "other", "-S", "train_extractor.training.seed=1")
    assert toy.ran(*experiment) == ["train_extractor", "score_generator", "report"]
    table = toy.dvc("exp", "show", "--md")
    assert "other" in table and "train_extractor.training.seed" in table
    changed = json.loads(toy.dvc("metrics", "diff", "--json"))
    assert changed["metrics/generator.json"]["fd"]["diff"] != 0


@pytest.mark.slow
def test_the_queue_runs_the_code_that_was_queued_and_shows_each_value(toy: Sandbox) -> None:
    body = "src/darkroom/stages/report.py"
    toy.replace(body, 'hold("report")', 'hold("report")  # a comment')
    toy.dvc("exp", "run", "--queue", "--name", "titled", "-S", "report.title=Sunrise,Sunset")
    toy.replace(body, 'hold("report")  # a comment', 'raise SystemExit("this was edited after queueing")')
    with toy.bodies() as ran:
        toy.dvc("queue", "start")
        deadline = time.monotonic() + 300
        while (status := toy.dvc("queue", "status")).count("Success") < 2:
            assert "Failed" not in status, status
            assert time.monotonic() < deadline, status
            time.sleep(1)
    assert ran == [], "a queued experiment works in a copy of the repository"
    logs = toy.dvc("queue", "logs", "titled-1")
    assert re.findall(r"Running stage '(.+)':", logs) == ["code", "report"], "a comment retrains nothing there, either"
    table = toy.dvc("exp", "show", "--md", "--param-deps")
    assert "report.title" in table and all(title in table for title in ("Sunrise", "Sunset"))
    toy.run("git", "checkout", "--quiet", body)
    toy.dvc("exp", "apply", "titled-1")
    assert "Sunrise" in (toy.root / "reports/index.html").read_text(errors="replace")
