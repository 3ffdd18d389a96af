"""A small share of `make torture`: real trainings, real SIGKILL, and not one bit of difference.

The program runs once, beside pytest: it forks, mounts and kills, and wants a process without threads for that.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from torture.disk import WHOLE
from torture.faults import POINTS
from torture.lives import environment

GAN, DIT, EACH, UPDATES = 1, 1, 1, 40
KINDS = ("kl", "dvae", "vqgan", "vq_ar")

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the faults are found through /proc")


@pytest.fixture(scope="module")
def tally(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What happened."""
    path = tmp_path_factory.mktemp("torture") / "tally.json"
    asked = {"gan": GAN, "dit": DIT, "tokenizers": EACH, "updates": UPDATES, "json": path}
    options = [word for name, value in asked.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "torture", *options]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    print(done.stdout, done.stderr)
    assert path.exists(), done.stderr
    return json.loads(path.read_text()) | {"status": done.returncode}


def test_killed_and_damaged_trainings_end_as_undisturbed_ones_to_the_last_bit(tally: dict[str, Any]) -> None:
    """Crashes in a save, flipped bits and each loss of each life included: what is not as it must be is a fault."""
    assert tally["faults"] == [] and tally["status"] == 0
    assert tally["counts"]["kills"] == GAN + DIT + len(KINDS) * EACH
    assert all(tally["counts"][f"kills_{kind}"] == EACH for kind in KINDS)
    assert tally["counts"]["repeated"] > 0
    assert tally["crashes"].keys() == set(POINTS) and len(tally["flips"]) == 4
    # Other state: the sample evolutions.
    assert tally["differing"] == dict.fromkeys(["weights", "EMA", "optimizer", "records", "other state"], 0)


def test_a_full_disk_leaves_the_checkpoints_and_the_same_command_continues(tally: dict[str, Any]) -> None:
    if tally["disk"].startswith("skipped"):
        pytest.skip(tally["disk"])
    assert tally["disk"] == WHOLE
