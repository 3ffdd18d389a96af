"""How a codebook is used, against the formulas."""

import numpy as np
import pytest

from darkroom.errors import DarkroomError
from darkroom.metrics.codes import code_counts, code_scores, entropy, histogram, usage_scores


def test_codes_are_counted_over_batches_of_any_shape() -> None:
    batches = [np.array([[[0, 3], [3, 3]]]), np.array([[[1, 3]]])]
    assert code_counts(batches, 5).tolist() == [1, 1, 0, 4, 0]


def test_an_even_codebook_has_its_size_as_perplexity() -> None:
    assert usage_scores(np.full(8, 3)) == {"codebook_usage": 1.0, "codebook_perplexity": 8.0, "dead_codes": 0.0}
    assert usage_scores(np.array([0, 9, 0])) == {
        "codebook_usage": 1 / 3,
        "codebook_perplexity": 1.0,
        "dead_codes": 2.0,
    }


def test_entropy_is_shannons() -> None:
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 50, 40)
    p = [count / counts.sum() for count in counts.tolist() if count]
    assert entropy(counts) == pytest.approx(sum(-q * np.log(q) / np.log(2) for q in p), rel=1e-12)


def test_the_splits_are_told_apart_and_bits_are_of_a_pixel() -> None:
    """64 codes of 256 for 32 x 32 pixels: 8 bits at each of 64 places, over 1024 pixels."""
    train, scored = np.arange(256), np.zeros(256, dtype=np.int64)
    scored[:4] = 5
    found = code_scores(train, scored, 64, 1024)
    assert found["bits_per_pixel"] == 0.5
    assert found["bits_per_pixel_entropy"] == pytest.approx(2 * 64 / 1024)
    assert (found["dead_codes"], found["dead_codes_scored"]) == (1, 252)
    assert found["codebook_usage"] == 255 / 256 and found["codebook_usage_scored"] == 4 / 256
    assert found["codebook_perplexity_scored"] == pytest.approx(4)
    assert found["codebook_perplexity"] == pytest.approx(2 ** entropy(train))


def test_what_is_no_code_is_refused() -> None:
    for codes in (np.array([[3]]), np.array([[-1]])):
        with pytest.raises(DarkroomError, match="its codebook has 3 codes, from 0 on"):
            code_counts([codes], 3)
    with pytest.raises(DarkroomError, match="no codes to count"):
        code_counts([], 3)


def test_the_table_is_sorted_by_the_train_split() -> None:
    table = histogram(np.array([2, 7, 2]), np.array([1, 0, 4]))
    assert table == "rank\tcode\ttrain\tscored\n1\t1\t7\t0\n2\t0\t2\t1\n3\t2\t2\t4\n"
    assert histogram(None, None) == "rank\tcode\ttrain\tscored\n"
