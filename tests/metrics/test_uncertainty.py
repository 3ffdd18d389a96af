import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darkroom.errors import DarkroomError
from darkroom.metrics.uncertainty import assign_blocks, block_slices, jackknife


def test_debiases_the_plug_in_variance_exactly() -> None:
    # Known closed form: the delete-one jackknife of Σ(x - x̄)²/n is the unbiased variance.
    x = np.random.default_rng(0).normal(size=30)
    found = jackknife(float(x.var()), [float(np.delete(x, i).var()) for i in range(30)])
    assert found.debiased == pytest.approx(x.var(ddof=1), rel=1e-12)


def test_error_of_a_mean_is_the_standard_error_of_block_means() -> None:
    x = np.random.default_rng(1).normal(size=(10, 7))
    found = jackknife(float(x.mean()), [float(np.delete(x, b, axis=0).mean()) for b in range(10)])
    assert found.se == pytest.approx(x.mean(1).std(ddof=1) / np.sqrt(10), rel=1e-12)
    assert found.debiased == pytest.approx(found.value, rel=1e-12)


@given(st.integers(2, 40), st.integers(0, 300))
def test_blocks_are_contiguous_even_and_complete(blocks: int, extra: int) -> None:
    samples = 2 * blocks + extra
    block = assign_blocks(samples, blocks).tolist()
    assert block == [i * blocks // samples for i in range(samples)]
    sizes = np.bincount(block)
    assert len(sizes) == blocks and sizes.max() - sizes.min() <= 1
    slices = block_slices(assign_blocks(samples, blocks))
    assert [block.index(b) for b in range(blocks)] == [start for start, _ in slices]
    assert [stop - start for start, stop in slices] == sizes.tolist()


def test_blocks_hold_the_classes_of_the_whole() -> None:
    classes = np.arange(1000) % 10
    block = assign_blocks(1000, 10).numpy()
    assert all((np.bincount(classes[block == b]) == 10).all() for b in range(10))


@pytest.mark.parametrize(("samples", "blocks", "words"), [(19, 10, "too few"), (100, 1, "at least 2 blocks")])
def test_too_few_is_refused(samples: int, blocks: int, words: str) -> None:
    with pytest.raises(DarkroomError, match=words):
        assign_blocks(samples, blocks)


def test_one_block_has_no_jackknife() -> None:
    with pytest.raises(DarkroomError, match="at least 2 blocks"):
        jackknife(1.0, [1.0])
