"""The section of the tokenizer `vq_ar`."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from darkroom.models.tokenizers.kind_settings import Codes, Kind
from darkroom.params.numbers import Positive, Share, Weight


class VQAR(Kind):
    """Patches, a codebook, and a causal transformer over the codes, trained together; it also generates."""

    patch: Positive
    encoder_hidden: Positive | None
    dim: Positive
    codebook_dim: Positive | None
    codebook_size: Codes
    decay: Share
    kmeans_init: bool
    dead_below: Annotated[float, Field(ge=0)]
    depth: Positive
    heads: Positive
    head_dim: Annotated[int, Field(ge=4, multiple_of=4)]  # rotary positions turn pairs of half of it
    dropout: Share
    classes: bool
    label_dropout: Share
    logit_scale: Annotated[float, Field(gt=0)]
    logits_codebook: Literal["before", "after"]
    reconstruction_weight: Weight
    recon_from_pred_codes: Annotated[float, Field(ge=0, le=1)]
    commitment_weight: Weight
    ar_commitment_weight: Weight

    @model_validator(mode="after")
    def _foreseen(self) -> "VQAR":
        if self.logits_codebook == "after" and (self.kmeans_init or self.dead_below):
            raise ValueError(
                "logits_codebook: after foresees the averages of the codebook alone: take before, or, as genie2, "
                "kmeans_init: false and dead_below: 0.0"
            )
        return self

    @property
    def factor(self) -> int:
        """How many pixels stand behind one place of the latent: a code stands for a patch."""
        return self.patch

    @property
    def whole_batch(self) -> bool:
        """Whether the losses foresee the codebook as the whole batch will move it."""
        return self.logits_codebook == "after"

    def unfit(self, image_shape: tuple[int, int, int], batch: int) -> str | None:
        """Return why the codebook does not fit images of shape (C, H, W), so many in an update; None: it does."""
        return self.too_few(self.codebook_size, image_shape[1], batch) if self.kmeans_init else None

    @property
    def labelled(self) -> bool:
        """Whether the training needs the images' classes."""
        return self.classes
