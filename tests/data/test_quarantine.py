import pytest

from darkroom.data.damage import Action, Listed, Reason
from darkroom.data.quarantine import require_few
from darkroom.errors import DarkroomError


def rows(count: int, reason: Reason, action: Action = Action.QUARANTINE) -> list[Listed]:
    return [Listed(f"{reason}-{number}", reason, action, f"{reason} {number}", "") for number in range(count)]


def test_a_share_of_damage_is_allowed_and_no_more(tmp_path) -> None:
    require_few("one", rows(5, Reason.EMPTY), 100, 0.05, tmp_path / "logs")
    with pytest.raises(DarkroomError, match=r"part `one`: 6 of 100 samples cannot be used \(empty 6\)"):
        require_few("one", rows(6, Reason.EMPTY), 100, 0.05, tmp_path / "logs")
    assert (tmp_path / "logs" / "quarantine.parquet").is_file()


def test_a_sample_with_two_faults_counts_once_and_what_is_kept_not_at_all(tmp_path) -> None:
    twice = [
        *rows(5, Reason.EMPTY),
        *(Listed(row.key, Reason.KEY_TWICE, row.action, row.source, "") for row in rows(5, Reason.EMPTY)),
    ]
    require_few("one", [*twice, *rows(50, Reason.CAPTION_MISSING, Action.KEEP)], 100, 0.05, tmp_path)


def test_failed_downloads_are_nobodys_fault(tmp_path) -> None:
    require_few("one", [*rows(60, Reason.DOWNLOAD_FAILED), *rows(2, Reason.EMPTY)], 100, 0.05, tmp_path)
    with pytest.raises(DarkroomError, match="63 of 100"):
        require_few("one", [*rows(60, Reason.DOWNLOAD_FAILED), *rows(3, Reason.EMPTY)], 100, 0.05, tmp_path)


@pytest.mark.parametrize("seen", [0, 3])
def test_nothing_left_is_never_a_part(tmp_path, seen: int) -> None:
    with pytest.raises(DarkroomError, match="part `one`"):
        require_few("one", rows(seen, Reason.DOWNLOAD_FAILED), seen, 0.99, tmp_path)
