from collections.abc import Sequence
from pathlib import Path

import pytest

from darkroom.data.damage import Finding, Reason
from darkroom.data.parts import Sieve
from darkroom.data.pipeline import Outcome
from darkroom.data.quarantine import require_few
from darkroom.errors import DarkroomError
from data.making import RULES

Found = Sequence[Reason]


def require(logs: Path, most: float = 0.05, **samples: tuple[int, Found]) -> None:
    """Let samples through the sieve, by name how many with which findings, and check what is left."""
    sieve = Sieve(RULES)
    for name, (count, reasons) in samples.items():
        findings = tuple(map(Finding, reasons))
        for _ in sieve.passed(Outcome(f"{name}-{number}", name, findings=findings) for number in range(count)):
            pass
    require_few("one", sieve.listed, sieve.seen, sieve.left_out, sieve.excused, most, logs)


def test_a_share_of_damage_is_allowed_and_no_more(tmp_path: Path) -> None:
    require(tmp_path / "logs", empty=(5, [Reason.EMPTY]), good=(95, []))
    assert not (tmp_path / "logs").exists()
    with pytest.raises(DarkroomError, match=r"part `one`: 6 of 100 samples cannot be used \(empty 6\)"):
        require(tmp_path / "logs", empty=(6, [Reason.EMPTY]), good=(94, []))
    assert (tmp_path / "logs" / "quarantine.parquet").is_file()


def test_a_sample_with_two_faults_counts_once_and_what_is_kept_not_at_all(tmp_path: Path) -> None:
    both = [Reason.EMPTY, Reason.KEY_TWICE]
    require(tmp_path, twice=(5, both), kept=(50, [Reason.CAPTION_MISSING]), good=(45, []))


def test_samples_that_look_alike_in_the_list_count_each(tmp_path: Path) -> None:
    """As those of a tar whose members all have one name."""
    sieve = Sieve(RULES)
    assert len(list(sieve.passed(Outcome("image", "0.tar: image") for _ in range(100)))) == 1
    with pytest.raises(DarkroomError, match=r"99 of 100 samples cannot be used \(key_twice 99\)"):
        require_few("one", sieve.listed, sieve.seen, sieve.left_out, sieve.excused, 0.9, tmp_path)


def test_failed_downloads_and_copies_are_no_damage(tmp_path: Path) -> None:
    excused = {"failed": (30, [Reason.DOWNLOAD_FAILED]), "copies": (30, [Reason.DUPLICATE])}
    require(tmp_path, **excused, empty=(2, [Reason.EMPTY]), good=(38, []))
    with pytest.raises(DarkroomError, match="63 of 100"):
        require(tmp_path, **excused, empty=(3, [Reason.EMPTY, Reason.DUPLICATE]), good=(37, []))


@pytest.mark.parametrize("seen", [0, 3])
def test_nothing_left_is_never_a_part(tmp_path: Path, seen: int) -> None:
    with pytest.raises(DarkroomError, match="part `one`"):
        require(tmp_path, most=0.99, failed=(seen, [Reason.DOWNLOAD_FAILED]))
