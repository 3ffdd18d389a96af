"""Images from texts: the prior makes image embeddings of them, and the cascade images of these."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from darkroom.artifacts.manifest import ArtifactError
from darkroom.artifacts.models import PRIOR_FOLDER
from darkroom.models.decoder.cascade import Decoder
from darkroom.models.decoder.sample import SampleRequest
from darkroom.models.prior.network import Prior, sample_prior
from darkroom.models.prior.settings import PriorSampling


@dataclass(frozen=True)
class Imagination:
    """A prior and a decoder of the same CLIP, and how the prior is sampled; `seed` is of all its noise."""

    prior: Prior
    decoder: Decoder
    how: PriorSampling
    seed: int

    def embeddings(self, text: Tensor, encodings: Tensor | None, numbers: Sequence[int]) -> Tensor:
        """Return image embeddings, float32 (N, D), of text embeddings (N, D) and encodings (N, L, W)."""
        return sample_prior(self.prior, text, encodings, self.how, self.seed, numbers).cpu()

    def images(self, text: Tensor, encodings: Tensor | None, numbers: Sequence[int]) -> Iterator[Tensor]:
        """Yield images in batches, uint8 (n, C, H, W).

        Image i follows from its text, the seeds and numbers[i], bit for bit, whatever else is asked for.

        Args:
            text: CLIP's text embeddings, (N, D).
            encodings: of the same texts, (N, L, W), where the prior or the decoder reads them.
            numbers: which images they are.
        """
        found = self.embeddings(text, encodings, numbers)
        return self.decoder.images(SampleRequest(numbers, found, encodings))


def require_same_clip(prior: Prior, decoder: Decoder, clip: str, where: str) -> None:
    """Check that prior and decoder speak of the embeddings of one CLIP, stored in one way.

    Args:
        prior: the one.
        decoder: the other.
        clip: the identity of the CLIP whose text embeddings the prior will be given.
        where: where it is, or what was made by it, for the message.

    Raises:
        ArtifactError: they do not; says which stage to run.
    """
    if prior.metadata["clip"] != clip:
        raise ArtifactError(
            f"{PRIOR_FOLDER} was trained with another CLIP than that of {where}: train it again "
            "(`dvc repro train_prior`)."
        )
    decoder.cascade.require_clip(clip, where)
    decoder.cascade.require_clip(clip, str(PRIOR_FOLDER), prior.normalised)
