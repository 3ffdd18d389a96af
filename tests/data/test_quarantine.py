from collections.abc import Sequence
from pathlib import Path

import pytest

from darkroom.artifacts.manifest import write_manifest
from darkroom.data.damage import QUARANTINE, Finding, Reason, require_few, require_some, write_quarantine
from darkroom.data.layout import KIND
from darkroom.data.parts import SampleFilter
from darkroom.data.pipeline import Outcome
from darkroom.errors import DarkroomError
from data.making import RULES

Found = Sequence[Reason]


def part(root: Path, name: str = "one", **samples: tuple[int, Found]) -> SampleFilter:
    """Let samples through the sieve, by name how many with which findings, and write list and manifest of the part."""
    sieve = SampleFilter(RULES)
    stored = 0
    for sample, (count, reasons) in samples.items():
        findings = tuple(map(Finding, reasons))
        found = (Outcome(f"{sample}-{number}", sample, findings=findings) for number in range(count))
        stored += len(list(sieve.passed(found)))
    written(root / name, sieve, stored)
    return sieve


def written(folder: Path, sieve: SampleFilter, stored: int) -> None:
    folder.mkdir(parents=True)
    entry = write_quarantine(folder, sieve.listed, sieve.left_out, sieve.excused)
    write_manifest(folder, KIND, quarantine=entry, splits={"train": {"images": stored}, "val": {"images": 0}})


def test_a_share_of_damage_is_allowed_and_no_more(tmp_path: Path) -> None:
    part(tmp_path, "one", empty=(5, [Reason.EMPTY]), good=(95, []))
    part(tmp_path, "two", empty=(6, [Reason.EMPTY]), good=(94, []))
    part(tmp_path, "all", good=(9, []))
    require_few(["one", "all"], 0.05, tmp_path)
    said = r"part `two`: 6 of 100 samples cannot be used \(empty 6\), but `catalog.max_quarantined` .*empty: empty\. "
    with pytest.raises(DarkroomError, match=said + "`darkroom data two --quarantine`"):
        require_few(["one", "two", "all"], 0.05, tmp_path)
    require_few(["one", "two"], 0.06, tmp_path)
    with pytest.raises(DarkroomError, match=r"part `one`: 5 of 100.*\npart `two`: 6 of 100"):  # all parts at once
        require_few(["one", "two", "all"], 0.0, tmp_path)


def test_a_sample_with_two_faults_counts_once_and_what_is_kept_not_at_all(tmp_path: Path) -> None:
    both = [Reason.EMPTY, Reason.KEY_TWICE]
    part(tmp_path, twice=(5, both), kept=(50, [Reason.CAPTION_MISSING]), good=(45, []))
    require_few(["one"], 0.05, tmp_path)


def test_samples_that_look_alike_in_the_list_count_each(tmp_path: Path) -> None:
    """As those of a tar whose members all have one name."""
    sieve = SampleFilter(RULES)
    assert len(list(sieve.passed(Outcome("image", "0.tar: image") for _ in range(100)))) == 1
    written(tmp_path / "one", sieve, 1)
    with pytest.raises(DarkroomError, match=r"99 of 100 samples cannot be used \(key_twice 99\)"):
        require_few(["one"], 0.9, tmp_path)


def test_copies_and_further_images_are_no_damage(tmp_path: Path) -> None:
    excused: dict[str, tuple[int, Found]] = {
        "copies": (50, [Reason.DUPLICATE]),
        "further": (10, [Reason.PASSED_OVER]),
    }
    part(tmp_path, "one", **excused, empty=(2, [Reason.EMPTY]), good=(38, []))
    require_few(["one"], 0.05, tmp_path)
    part(tmp_path, "two", **excused, empty=(3, [Reason.EMPTY, Reason.DUPLICATE]), good=(37, []))
    with pytest.raises(DarkroomError, match="63 of 100"):
        require_few(["two"], 0.05, tmp_path)


@pytest.mark.parametrize("seen", [0, 3])
def test_nothing_left_is_never_a_part(tmp_path: Path, seen: int) -> None:
    sieve = part(tmp_path, copies=(seen, [Reason.DUPLICATE]))
    with pytest.raises(DarkroomError, match="part `one`"):
        require_some("one", sieve.listed, sieve.samples, sieve.left_out, tmp_path / "logs")
    assert (tmp_path / "logs" / QUARANTINE).is_file() is bool(seen)
