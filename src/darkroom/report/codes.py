"""The frequency of each code of a discrete tokenizer: its table, and its chart on the page."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from markupsafe import Markup

from darkroom.artifacts.manifest import ArtifactError
from darkroom.report.charts import line_chart

_HEADER = "rank\tcode\ttrain\tscored"
_POINTS = 256  # maximum number of points of a curve


@dataclass(frozen=True)
class CodeCounts:
    """The number of occurrences of each code in the train split and in the reconstructed split."""

    train: list[int]
    scored: list[int]


def read_codes(path: Path) -> CodeCounts | None:
    """Return the table that `score_tokenizer` wrote; None where the tokenizer has no codes.

    Raises:
        ArtifactError: missing, or not a table of codes; the message names the file.
    """
    try:
        header, *lines = path.read_text().removesuffix("\n").split("\n")
        if header != _HEADER:
            raise ValueError(f"its first line is `{header}`")
        columns = [
            [int(value) for value in column] for column in zip(*(line.split("\t") for line in lines), strict=True)
        ]
        if not columns:
            return None
        _, _, train, scored = columns
        return CodeCounts(train, scored)
    except FileNotFoundError as error:
        raise ArtifactError(f"{path} is missing: run the stage that writes it (`dvc repro`).") from error
    except ValueError as error:
        raise ArtifactError(f"{path} is damaged ({error}): restore it with `dvc checkout {path.parent}`.") from error


def drawn(counts: CodeCounts, split: str) -> Markup:
    """Return a chart of the frequency of each code relative to a uniform distribution, in descending order.

    Each split is sorted by itself. A fully and uniformly used codebook is a line at 1.

    Args:
        counts: the counts of the codes.
        split: the name of the reconstructed split.
    """
    return line_chart(
        {"train": _falling(counts.train), "run": _falling(counts.scored)},
        "how often each code occurs, the most frequent first",
        "share, 1 = even",
        width=460.0,
        height=200.0,
        names={"train": "train split", "run": f"{split} split"},
        dots=(),
        x_label="codes, the most frequent first",
    )


def _falling(counts: Sequence[int]) -> list[tuple[float, float]]:
    """Return points (rank, frequency times the number of codes), at most `_POINTS` evenly spaced ones."""
    falling = np.sort(np.array(counts, dtype=np.float64))[::-1]
    falling *= len(falling) / max(1.0, falling.sum())
    chosen = np.unique(np.linspace(0, len(falling) - 1, min(_POINTS, len(falling))).round().astype(int))
    return [(float(rank + 1), float(falling[rank])) for rank in chosen]
