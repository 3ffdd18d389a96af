"""Both engines started together in one checkout: the second waits, neither fails, and each stage runs once."""

import random
import subprocess
import time

import pytest

from dag.sandbox import ENGINES, Sandbox


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_each_stage_runs_once(fresh: Sandbox, rounds: int) -> None:
    draw = random.Random(rounds)
    for at in range(rounds):
        # Something at the beginning of the DAG, so that much follows, or at its end.
        fresh.edit({"sample_generator": {"common": {"seed": 10 + at}}, "sample_text": {"images": 10 + at // 4}})
        order = list(ENGINES)
        draw.shuffle(order)
        with fresh.bodies() as ran:
            runs = {}
            for name in order:
                output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
                runs[name] = subprocess.Popen(ENGINES[name], cwd=fresh.root, env=fresh.environment, **output)
                time.sleep(draw.choice([0, draw.uniform(0, 4)]))
            for name, run in runs.items():
                text, _ = run.communicate(timeout=600)
                assert run.returncode == 0, f"round {at}, {order}, {name}:\n{text[-4000:]}"
        assert len(ran) == len(set(ran)) and {"sample_generator", "report"} <= set(ran), (at, order, ran)
        assert fresh.stale() == set()
