"""DVC's queue trains each kind of tokenizer, and `dvc exp show` compares them."""

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest

from dag.sandbox import Sandbox

KINDS = ("kl", "dvae", "vqgan", "vq_ar")

# Four times most of the DAG, one after the other: minutes each where other tests run beside.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def wait(sandbox: Sandbox, seconds: float) -> None:
    """Wait until all experiments of the queue are done."""
    deadline = time.monotonic() + seconds
    while (status := sandbox.dvc("queue", "status")).count("Success") < len(KINDS):
        assert "Failed" not in status, status
        assert time.monotonic() < deadline, status
        time.sleep(2)


def experiments(sandbox: Sandbox) -> list[dict[str, Any]]:
    """Return what `dvc exp show` says of each experiment."""
    rows = json.loads(sandbox.dvc("exp", "show", "--json"))
    return [each for row in rows for each in row["experiments"] or []]


def test_the_queue_trains_each_kind(committed: Sandbox, tmp_path: Path) -> None:
    sandbox = committed.copy(tmp_path / "clone")
    sandbox.dvc("exp", "run", "--queue", "-S", f"train_tokenizer.kind={','.join(KINDS)}")
    sandbox.dvc("queue", "start")
    wait(sandbox, 2400)
    found = {}
    for each in experiments(sandbox):
        assert each["executor"]["state"] == "success", each["executor"]
        shown = each["revs"][0]["data"]
        kind = shown["params"]["params.yaml"]["data"]["train_tokenizer"]["kind"]
        found[kind] = shown["metrics"]["metrics/tokenizer.json"]["data"]["psnr"]
    assert sorted(found) == sorted(KINDS)
    assert all(map(math.isfinite, found.values())), found
    assert len(set(found.values())) == len(KINDS), found
