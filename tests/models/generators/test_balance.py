"""Images of rare classes come more often, as often as the power says, whatever interrupts the training."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darkroom.errors import DarkroomError
from darkroom.models.generators.data import Balanced, repeated
from darkroom.training.loader import rows_at
from darkroom.training.recipe import Ordered


class Rows:
    """Rows that are numbers."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitems__(self, rows: Any, positions: Any = None) -> dict[str, Any]:
        return {"x": np.array(rows)}

    def keys(self, rows: Any) -> list[str]:
        return [f"key{row}" for row in rows]


LABELS = ["many"] * 64 + ["few"] * 4 + [None] * 6 + ["some"] * 9


def balanced(power: float) -> Balanced:
    return Balanced(Rows(len(LABELS)), pa.chunked_array([LABELS[:30], LABELS[30:]], pa.string()), power)


@pytest.mark.parametrize(
    ("power", "times"),
    [(0.0, {"few": 1, "some": 1}), (0.5, {"few": 4, "some": 8 / 3}), (1.0, {"few": 16, "some": 64 / 9})],
)
def test_images_come_as_often_as_the_power_says(power: float, times: dict[str, float]) -> None:
    rows = balanced(power)
    assert isinstance(rows, Ordered) and len(rows) == len(LABELS) and rows.keys([3]) == ["key3"]
    epoch = rows_at(rows, 5, np.arange(len(rows.sequence)))
    seen = np.bincount(epoch, minlength=len(LABELS))
    for name, expected in {**times, "many": 1, None: 1}.items():
        of_class = seen[[label == name for label in LABELS]]
        assert of_class.mean() == pytest.approx(expected, abs=0.5 / len(of_class) + 1e-9)
        assert of_class.max() - of_class.min() <= 1
    assert (rows_at(rows, 6, np.arange(50)) != epoch[:50]).any() and (np.diff(epoch) != 0).any()


def test_positions_say_the_row_whatever_was_asked_before() -> None:
    rows = balanced(0.5)
    whole = rows_at(rows, 1, np.arange(400))
    np.testing.assert_array_equal(rows_at(rows, 1, np.arange(137, 400)), whole[137:])
    assert rows.__getitems__([2, 1])["x"].tolist() == [2, 1]


@pytest.mark.parametrize("label", ["one", None])
def test_without_classes_it_is_refused(label: str | None) -> None:
    with pytest.raises(DarkroomError, match=r"`train_generator\.dit\.balance` needs images of two classes"):
        Balanced(Rows(3), pa.chunked_array([[label] * 3], pa.string()), 0.5)


@given(st.integers(1, 40), st.floats(1, 20))
def test_each_row_comes_as_often_as_the_others_but_for_one(count: int, times: float) -> None:
    seen = np.bincount(repeated(np.arange(count), times), minlength=count)
    assert abs(seen.sum() - times * count) <= 0.5 + 1e-9 and seen.max() - seen.min() <= 1
