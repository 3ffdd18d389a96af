"""Two processes share each batch: the same images in the same order, the same losses, the same ends."""

import json
import shutil
import struct
from pathlib import Path

import pytest
import torch

from forks import in_ranks
from training.together import member


def together(
    folder: Path,
    processes: int,
    stop_at: int | None = None,
    sharded: bool = False,
    batch: int = 8,
    optimizer: str = "adamw",
) -> list[int | None]:
    """Train in some processes over gloo, and return their exit codes."""
    return in_ranks(member, folder, processes, batch, stop_at, sharded, optimizer, ends=(0, 143))


def result(folder: Path) -> dict:
    return json.loads((folder / "result.json").read_text())


def met(folder: Path, processes: int) -> list[dict]:
    return [json.loads((folder / f"met-{rank}.json").read_text()) for rank in range(processes)]


def numbers(found: dict) -> list[float]:
    """The weights and averages of a result as numbers."""
    raw = b"".join(bytes.fromhex(value) for value in found["weights"].values())
    return list(struct.unpack(f"{len(raw) // 4}f", raw))


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    assert together(folder, 1) == [0]
    return folder


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    assert together(folder, 2) == [0, 0]
    return folder


def test_each_image_stands_where_it_stands_in_one_process(one, two):
    first, second = met(two, 2)
    assert first.keys().isdisjoint(second) and first | second == met(one, 1)[0]
    assert sorted(map(int, first))[:8] == [0, 1, 2, 3, 8, 9, 10, 11]


def test_losses_and_weights_are_those_of_one_process_to_rounding(one, two):
    """1e-5 relative: float32 gradients summed in another order, over 8 updates of a network of 60 weights."""
    alone, shared = result(one), result(two)
    assert len(alone["records"]) == len(shared["records"]) == 4
    for mine, theirs in zip(alone["records"], shared["records"], strict=True):
        assert mine.keys() == theirs.keys()
        for name in mine:
            assert theirs[name] == pytest.approx(mine[name], rel=1e-5), name
    assert numbers(shared) == pytest.approx(numbers(alone), rel=1e-4, abs=1e-6)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """Two processes that stopped: position 42 lies in the share of rank 0."""
    folder = tmp_path_factory.mktemp("stopped")
    assert together(folder, 2, stop_at=42) == [143, 143]
    return folder


@pytest.mark.slow
def test_a_signal_to_one_process_stops_all_at_the_same_update_and_they_continue_bit_for_bit(two, stopped, tmp_path):
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    assert [folder.name for folder in (tmp_path / "state").iterdir()] == ["images-000000000048"]
    assert together(tmp_path, 2) == [0, 0]
    assert result(tmp_path) == result(two)


def test_one_process_continues_what_two_began(one, stopped, tmp_path):
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    assert together(tmp_path, 1) == [0]
    assert numbers(result(tmp_path)) == pytest.approx(numbers(result(one)), rel=1e-4, abs=1e-6)
    last, expected = result(tmp_path)["records"][-1], result(one)["records"][-1]
    assert last == pytest.approx(expected, rel=1e-5)


def test_shards_train_stop_and_continue_as_whole_weights_do(one, tmp_path):
    """Weights, averages and moments in halves, over FSDP 2: saved whole and by name, so that one process continues."""
    assert together(tmp_path / "sharded", 2, sharded=True) == [0, 0]
    whole = result(tmp_path / "sharded")
    assert numbers(whole) == pytest.approx(numbers(result(one)), rel=1e-4, abs=1e-6)
    assert [record["images"] for record in whole["records"]] == [16, 32, 48, 64]
    assert together(tmp_path / "stopped", 2, stop_at=42, sharded=True) == [143, 143]
    shutil.copytree(tmp_path / "stopped", tmp_path / "alone")
    assert together(tmp_path / "stopped", 2, sharded=True) == [0, 0]
    assert result(tmp_path / "stopped") == whole
    assert together(tmp_path / "alone", 1) == [0]
    assert numbers(result(tmp_path / "alone")) == pytest.approx(numbers(result(one)), rel=1e-4, abs=1e-6)


def test_three_processes_continue_bit_for_bit(tmp_path):
    """Sums of three depend on their order, which DDP chooses by itself after a process's first update.

    Position 21 lies in the share of rank 1; the window of logged losses is half full.
    """
    assert together(tmp_path / "whole", 3, batch=9) == [0, 0, 0]
    assert together(tmp_path / "stopped", 3, stop_at=21, batch=9) == [143, 143, 143]
    assert [folder.name for folder in (tmp_path / "stopped" / "state").iterdir()] == ["images-000000000027"]
    assert together(tmp_path / "stopped", 3, batch=9) == [0, 0, 0]
    assert result(tmp_path / "stopped") == result(tmp_path / "whole")


def test_muon_moves_each_processs_weights_alike_and_continues_bit_for_bit(one, tmp_path):
    assert together(tmp_path / "alone", 1, optimizer="muon") == [0]
    assert together(tmp_path / "two", 2, optimizer="muon") == [0, 0]
    alone, two = result(tmp_path / "alone"), result(tmp_path / "two")
    first, second = (torch.load(tmp_path / "two" / f"weights-{rank}.pt") for rank in (0, 1))
    for name, weights in first.items():
        assert weights and all(torch.equal(weights[key], second[name][key]) for key in weights)
    # Gradients in another order of sums differ in the last bits, which five steps of a quintic enlarge.
    assert numbers(two) == pytest.approx(numbers(alone), rel=1e-3, abs=1e-5)
    assert numbers(alone) != pytest.approx(numbers(result(one)), rel=1e-2)
    assert together(tmp_path / "stopped", 2, stop_at=42, optimizer="muon") == [143, 143]
    assert together(tmp_path / "stopped", 2, optimizer="muon") == [0, 0]
    assert result(tmp_path / "stopped") == two
