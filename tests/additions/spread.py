"""A metric of any extractor as somebody would add it: one file, and its class in `FEATURE_METRICS`."""

from collections.abc import Mapping

from darkroom.metrics.measure import Samples
from darkroom.metrics.sample_scores import in_all_features, name_in
from darkroom.metrics.score import Score


class Spread:
    """The mean distance of features from their mean."""

    scores = in_all_features(
        Score(
            "spread",
            "Mean distance of the features of generated images from their mean.",
            "distances",
            formula="mean over images of |x - mean x|",
            error="standard deviation over images / sqrt(n)",
            title="Spread",
        )
    )
    needs = ()

    def measure(self, samples: Samples, reference: object) -> Mapping[str, float]:
        """Return `spread` and its standard error, under the extractor's name."""
        from darkroom.metrics.uncertainty import mean_and_error

        distances = (samples.features - samples.features.mean(0)).norm(dim=1)
        return mean_and_error(name_in(samples.extractor, "spread"), distances.tolist())
