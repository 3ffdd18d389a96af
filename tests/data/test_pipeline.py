"""Several processes give the same outcomes in the same order, and nothing is lost, left running or piled up."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from PIL import Image

from darkroom.data.damage import Finding, Reason
from darkroom.data.pipeline import outcome, outcomes
from darkroom.errors import DarkroomError
from data.making import Noise, preparation
from data.sources_for_pipeline import Deadly, Endless, Mixed

TESTS = Path(__file__).parents[1]


def test_any_number_of_processes_gives_the_same_in_the_same_order() -> None:
    source = Mixed()
    one, three = (list(outcomes(source, source.entries(0, 100), preparation(), processes)) for processes in (1, 3))
    assert one == three
    assert [each.key for each in one] == [f"noise-{number:04d}" for number in range(100)]
    for number, each in enumerate(one):
        if number % 3 == 0:
            assert each.findings == (Finding(Reason.UNREADABLE, f"number {number}"),)
            assert each.data is None
        else:
            assert each.findings == () and each.data is not None


def test_what_is_not_stored_is_checked_all_the_same() -> None:
    source = Mixed()
    found = [outcome(source, entry, preparation(), store=False) for entry in source.entries(0, 9)]
    assert [each.original_size is None for each in found] == [number % 3 == 0 for number in range(9)]
    assert {each.data for each in found} == {None}


@pytest.mark.parametrize("processes", [1, 2])
def test_entries_are_taken_as_they_are_needed(processes: int) -> None:
    source = Endless()
    found = outcomes(source, source.entries(0, None), preparation(), processes)
    for _ in range(40):
        next(found)
    found.close()  # type: ignore[attr-defined]
    assert source.taken <= 40 + 16 * 3 * processes


def test_a_killed_process_is_told_and_not_waited_for() -> None:
    source = Deadly()
    with pytest.raises(DarkroomError, match=r"was killed.*run\.ingest_processes"):
        list(outcomes(source, source.entries(0, 100), preparation(), 2))


_SLOW = """
import time
from data.making import Noise, preparation
from darkroom.data.pipeline import outcomes

class Slow(Noise):
    def read(self, entry):
        time.sleep(0.05)
        return super().read(entry)

if __name__ == "__main__":
    source = Slow()
    for number, each in enumerate(outcomes(source, source.entries(0, 100_000), preparation(), 2)):
        print(number, flush=True)
"""


def test_no_process_outlives_its_parent(tmp_path: Path) -> None:
    script = tmp_path / "slow.py"
    script.write_text(_SLOW)
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent / "src")])
    parent = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": paths}
    )
    assert parent.stdout is not None
    parent.stdout.readline()  # the processes are at work
    children = psutil.Process(parent.pid).children(recursive=True)
    assert len(children) >= 2
    parent.kill()
    parent.wait()
    _, alive = psutil.wait_procs(children, timeout=15)
    assert not alive


def test_a_full_memory_is_no_fault_of_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Noise()

    def full(image: Image.Image, how: object, key: str) -> Image.Image:
        raise MemoryError

    monkeypatch.setattr("darkroom.data.pipeline.prepare", full)
    with pytest.raises(DarkroomError, match=r"noise 0: probably memory ran out.*ingest\.max_pixels"):
        outcome(source, next(source.entries(0, 1)), preparation())
