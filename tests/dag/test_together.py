"""Both engines started together in one checkout: the second waits, neither fails, and each stage runs once."""

import random
import subprocess
import time

import pytest

from dag.sandbox import ENGINES, Sandbox


@pytest.mark.parametrize("rounds", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_each_stage_runs_once(toy: Sandbox, rounds: int) -> None:
    draw = random.Random(rounds)
    for at in range(rounds):
        toy.edit({"train_extractor": {"training": {"seed": 10 + at}}})
        order = list(ENGINES)
        draw.shuffle(order)
        with toy.bodies() as ran:
            runs = {}
            for name in order:
                output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
                runs[name] = subprocess.Popen(ENGINES[name], cwd=toy.root, env=toy.environment, **output)
                time.sleep(draw.choice([0, draw.uniform(0, 2)]))
            for name, run in runs.items():
                text, _ = run.communicate(timeout=600)
                assert run.returncode == 0, f"round {at}, {order}, {name}:\n{text[-4000:]}"
        assert ran == ["train_extractor", "score_generator", "report"], (at, order)
        assert toy.stale() == set()
