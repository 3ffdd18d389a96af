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


def test_nothing_is_wrong(tally: dict[str, Any]) -> None:
    assert tally["faults"] == [] and tally["status"] == 0


def test_killed_trainings_end_as_undisturbed_ones_to_the_last_bit(tally: dict[str, Any]) -> None:
    assert tally["counts"]["kills"] == GAN + DIT + len(KINDS) * EACH
    assert all(tally["counts"][f"kills_{kind}"] == EACH for kind in KINDS)
    # Other state: the sample evolutions.
    assert tally["differing"] == dict.fromkeys(["weights", "EMA", "optimizer", "records", "other state"], 0)


def test_every_loss_of_every_life_is_that_of_the_undisturbed_training(tally: dict[str, Any]) -> None:
    """Those of updates that were lost and done again, too."""
    assert tally["counts"]["repeated"] > 0 and tally["counts"]["losses"] > tally["counts"]["trainings"] * UPDATES // 4
    assert tally["counts"]["wrong_losses"] == 0


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_inside_the_save_costs_no_bit(tally: dict[str, Any], point: str) -> None:
    assert tally["crashes"][point] == "died there"


@pytest.mark.parametrize("name", ["modules", "optimizers", "manifest"])
def test_a_flipped_bit_is_found_and_the_checkpoint_before_taken(tally: dict[str, Any], name: str) -> None:
    said = [each for each in tally["flips"] if each.startswith(name)]
    assert said and all(each.endswith(": set aside") for each in said)


def test_a_full_disk_leaves_the_checkpoints_and_the_same_command_continues(tally: dict[str, Any]) -> None:
    if tally["disk"].startswith("skipped"):
        pytest.skip(tally["disk"])
    assert tally["disk"] == WHOLE
