"""Numbers as they are written."""

import pytest

from darkroom.report.numbers import number, percent

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


def test_percent() -> None:
    assert [percent(share) for share in (0.9814, 1.0, 0.0)] == ["98.1%", "100.0%", "0.0%"]
