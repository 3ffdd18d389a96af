"""Every score by its name, with its formula, its meaning and its direction. Loads no torch.

To add a metric, write a class in a file next to this one (`Metric` in `measure.py`) and list it in `FEATURE_METRICS` or
`SAMPLE_METRICS`: stages and `darkroom score` then measure it, and cards, `darkroom scores`, `darkroom compare` and the
page include it.
"""

from collections.abc import Mapping

from darkroom.metrics.labels import ClassMetric
from darkroom.metrics.measure import CMMD_METRIC, DISTANCE_METRICS, INCEPTION_METRIC, MANIFOLD_METRIC, Metric
from darkroom.metrics.pair_scores import BITS, CODES, IMAGES, PAIRS, PRIOR, RETRIEVAL
from darkroom.metrics.sample_scores import DISTANCES, DIVERSITY, FEATURE_SCORES, HELD_OUT, MEMORISATION
from darkroom.metrics.score import Score

COUNT = "n"  # of images, in a metrics file

# Measured in the features of each extractor, for generated images and for real ones.
FEATURE_METRICS: tuple[Metric, ...] = (
    *DISTANCE_METRICS,
    INCEPTION_METRIC,
    CMMD_METRIC,
)
# Measured for all generated images, with the features of the in-domain extractor.
SAMPLE_METRICS: tuple[Metric, ...] = (
    MANIFOLD_METRIC,
    ClassMetric(),
)


def metrics_of(extractor: str) -> tuple[Metric, ...]:
    """Return the metrics that stages measure in the features of an extractor."""
    return (*FEATURE_METRICS, *(SAMPLE_METRICS if extractor == "in_domain" else ()))


def scores() -> dict[str, Score]:
    """Return all scores by name, in the order of the tables."""
    measured = [score for metric in (*FEATURE_METRICS, *SAMPLE_METRICS) for score in metric.scores]
    listed = (
        *(*DISTANCES, *HELD_OUT, *FEATURE_SCORES, *measured, *DIVERSITY, *MEMORISATION, *BITS),
        *(*IMAGES, *CODES, *RETRIEVAL, *PAIRS, *PRIOR),
    )
    return {score.name: score for score in listed}


def of_group(*groups: str) -> tuple[str, ...]:
    """Return the names of the scores of some groups, in the order of the tables."""
    return tuple(name for name, score in scores().items() if score.group in groups)


def formulas(names: Mapping[str, float]) -> dict[str, str]:
    """Return the formula of each score and standard error of a metrics file, by its name; a count has none."""
    known, by_name = scores(), {}
    for name in names:
        score = known.get(name.removesuffix("_se"))
        text = "" if score is None else score.error if name.endswith("_se") else score.formula
        if text:
            by_name[name] = text
    return by_name
