"""Codebook usage of a discrete tokenizer, and the cost of its codes in bits, from the counts of the codes."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from darkroom.errors import DarkroomError

Counts = NDArray[np.int64]


def code_counts(batches: Iterable[NDArray[np.int64]], size: int) -> Counts:
    """Count each of `size` codes in batches of codes of any shape; return int64 (size,).

    Raises:
        DarkroomError: there are no codes, or a code is not in the codebook.
    """
    counts = np.zeros(size, dtype=np.int64)
    for codes in batches:
        if codes.size and not 0 <= codes.min() <= codes.max() < size:
            raise DarkroomError(
                f"the tokenizer returned codes from {codes.min()} to {codes.max()}, but its codebook has {size} codes, "
                "from 0 on: train the tokenizer again."
            )
        counts += np.bincount(codes.reshape(-1), minlength=size)
    if not counts.any():
        raise DarkroomError("there are no codes to count: check that the split is not empty.")
    return counts


def entropy(counts: Counts) -> float:
    """Return the entropy of a code in bits, H = -Σ p log2 p, p the frequency of each code; float64 (Shannon, 1948)."""
    frequencies = counts[counts > 0] / counts.sum()
    return max(0.0, float(-(frequencies * np.log2(frequencies)).sum()))


def usage_scores(counts: Counts) -> dict[str, float]:
    """Return usage scores of a codebook of K codes.

    `codebook_usage`: fraction of the codes that occur; `codebook_perplexity`: 2^H, the number of equally frequent codes
    with the same entropy, 1 to K; `dead_codes`: number of codes that never occur.
    """
    used = int((counts > 0).sum())
    return {
        "codebook_usage": used / len(counts),
        "codebook_perplexity": 2 ** entropy(counts),
        "dead_codes": float(len(counts) - used),
    }


def code_scores(train: Counts, scored: Counts, places: int, pixels: int) -> dict[str, float]:
    """Return the scores of a codebook of K codes, from their counts, (K,), in the train and the scored split.

    `places` are the codes, `pixels` the pixels of an image.

    Returns:
        those of `usage_scores` of the train split, and of the scored split with the suffix `_scored`;
        `bits_per_pixel`, log2(K) places / pixels: the same number of bits for all codes; and
        `bits_per_pixel_entropy`, H places / pixels: bits by the frequency of each code in the scored split.
    """
    return {
        **usage_scores(train),
        **{f"{name}_scored": value for name, value in usage_scores(scored).items()},
        "bits_per_pixel": float(np.log2(len(train))) * places / pixels,
        "bits_per_pixel_entropy": entropy(scored) * places / pixels,
    }


def histogram(train: Counts | None, scored: Counts | None) -> str:
    """Return the counts of the codes as tab-separated text, the most frequent code of the train split first.

    Its columns are rank, code, train, scored; it has no rows where a tokenizer has no codes (None).
    """
    lines = ["rank\tcode\ttrain\tscored"]
    if train is not None and scored is not None:
        order = np.argsort(-train, kind="stable")
        lines += [f"{rank}\t{code}\t{train[code]}\t{scored[code]}" for rank, code in enumerate(order.tolist(), 1)]
    return "\n".join(lines) + "\n"
