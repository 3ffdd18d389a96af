"""A metric as somebody would add it: one file, and its class in `SAMPLE_METRICS`."""

from collections.abc import Mapping

from darkroom.metrics.measure import Samples
from darkroom.metrics.score import Score


class Brightness:
    """The mean grey level of generated images."""

    scores = (
        Score(
            "brightness",
            "Mean grey level over images, 0 to 255.",
            "brightness",
            formula="mean over images of the mean over pixels and channels",
            error="standard deviation over images / sqrt(n)",
            title="mean brightness",
            higher_is_better=True,
        ),
    )

    needs = ("images",)

    def measure(self, samples: Samples, reference: object) -> Mapping[str, float]:
        """Return `brightness` and its standard error."""
        means = [float(image.mean()) for images in samples.images("brightness") for image in images]
        mean = sum(means) / len(means)
        variance = sum((value - mean) ** 2 for value in means) / (len(means) - 1)
        return {"brightness": mean, "brightness_se": (variance / len(means)) ** 0.5}
