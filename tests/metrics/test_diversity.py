import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from darkroom.errors import DarkroomError
from darkroom.metrics.diversity import diversity, pairs


@given(st.lists(st.sampled_from(["a", "b", None]), min_size=5, max_size=40), st.integers(0, 5), st.integers(1, 30))
def test_pairs_are_of_one_class_and_no_image_is_in_two(labels: list[str | None], seed: int, most: int) -> None:
    found = pairs(labels, most, seed)
    assert all(labels[one] == labels[other] for one, other in found)
    assert len(set(found.flatten().tolist())) == found.size
    possible = sum(labels.count(name) // 2 for name in ("a", "b", None))
    assert len(found) == min(most, possible)
    assert (found == pairs(labels, most, seed)).all()


def test_the_mean_over_the_pairs() -> None:
    images = torch.arange(6, dtype=torch.uint8)[:, None, None, None].expand(6, 3, 2, 2)

    def measure(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return (one.double() - other.double()).abs().mean((1, 2, 3))

    found = diversity(measure, lambda rows: images[torch.from_numpy(rows)], np.array([[0, 5], [1, 2]]))
    assert found == pytest.approx({"lpips_diversity": 3, "lpips_diversity_se": 2})


def test_without_pairs_one_sentence() -> None:
    with pytest.raises(DarkroomError, match="no class has two images"):
        pairs(["a", "b"], 10, 0)
