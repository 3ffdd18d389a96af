"""Numbers as they are written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from darkroom.report.numbers import number, percent, widths

MINUS = "\N{MINUS SIGN}"


@pytest.mark.parametrize(
    ("value", "se", "text", "se_text"),
    [
        (2.587525, 1.157983, "2.6", "1.2"),
        (-0.026927, 0.023475, f"{MINUS}0.027", "0.023"),
        (1234.5, 56.7, "1,234", "57"),
        (0.98, 0.0, "0.9800", "0"),
        (42.14085, None, "42.14", ""),
        (0.0019288, None, "0.001929", ""),
        (0.0, None, "0", ""),
        (-0.0001, 0.5, "0.00", "0.50"),
    ],
)
def test_number_is_written_to_the_second_digit_of_its_error(
    value: float, se: float | None, text: str, se_text: str
) -> None:
    found = number(value, se)
    assert (found.text, found.se_text) == (text, se_text)


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_pieces_join_and_stay_within_the_rounding(value: float, se: float) -> None:
    found = number(value, se)
    pieces = found.pieces
    assert pieces["whole"] + pieces["fraction"] == found.text
    assert pieces["se_whole"] + pieces["se_fraction"] == found.se_text
    decimals = max(0, len(pieces["fraction"]) - 1)
    shown = float(found.text.replace(MINUS, "-").replace(",", ""))
    assert abs(shown - value) <= 0.5000001 * 10**-decimals
    assert not found.text.startswith(MINUS) or shown < 0  # no negative zero


def test_widths_are_the_most_letters_on_each_side() -> None:
    assert widths([number(12.5, 0.25), number(0.5, 0.0125)]) == {
        "whole": 2,
        "fraction": 4,
        "se_whole": 1,
        "se_fraction": 4,
    }
    assert widths([])["whole"] == 0


def test_percent() -> None:
    assert [percent(share) for share in (0.9814, 1.0, 0.0)] == ["98.1%", "100.0%", "0.0%"]
