"""The section of one U-Net of the cascade, `train_decoder.unets.NAME`."""

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from darkroom.diffusion.settings import SOLVERS, Diffusion, ObjectiveName, Probability, Sampling, Solver, Steps
from darkroom.params.kinds import OWN_TRAINING, require_known
from darkroom.params.section import NO_FILE, Fraction, Overrides, Positive, Section

Area = Annotated[float, Field(gt=0, le=1)]
Ratio = Annotated[float, Field(gt=0)]
_READERS = "model.image_tokens, model.image_to_time, model.image_map or model.text_tokens"  # of CLIP


class Model(Section):
    """The size of a U-Net, and the inputs of its conditions."""

    channels: Annotated[list[Positive], Field(min_length=1)] = [64, 128]
    """Width of each level; between two levels the resolution is halved."""
    attention: list[bool] = [False, True]
    """For each level, whether it has attention over its positions and the tokens of the condition."""
    layers: Positive = 1
    """Residual layers of each level."""
    head_dim: Positive = 32
    """Width of an attention head."""
    norm_groups: Positive = 8
    """Groups of the group norms."""
    patch: Positive = 1
    """Pixels, height and width, of one position of the first level: 2 takes a third of the time on a CPU."""
    dropout: Fraction = 0.1
    """Fraction of features dropped in training."""
    image_tokens: Annotated[int, Field(ge=0)] = 0
    """Tokens from the image embedding, which attention reads; 0: none."""
    image_to_time: bool = True
    """Also add the image embedding to the timestep embedding."""
    image_map: Annotated[int, Field(ge=0)] = 8
    """Further input channels: a map that a linear layer computes from the image embedding; 0: none."""
    text_tokens: bool = False
    """Tokens of CLIP's encoding of the caption, which attention reads: `embed_clip.encodings`."""
    self_condition: bool = False
    """Self-conditioning: in half of the cases the previous prediction is a condition."""

    def _misfits(self) -> Iterator[str]:
        if len(self.attention) != len(self.channels):
            yield f"attention has {len(self.attention)} levels, but channels {len(self.channels)}"
        for channels, attention in zip(self.channels, self.attention, strict=True):
            if channels % self.norm_groups:
                yield f"norm_groups ({self.norm_groups}) must divide each of channels ({channels})"
            if attention and channels % self.head_dim:
                yield f"head_dim ({self.head_dim}) must divide the channels of a level with attention"
        if (self.image_tokens or self.text_tokens) and not any(self.attention):
            yield "image_tokens and text_tokens need attention, but no level has it"


class UNetDiffusion(Diffusion):
    """The diffusion of a U-Net, and how often it is trained without its conditions."""

    TWO_TIMES = False

    objective: ObjectiveName = "flow"
    image_dropout: Probability = 0.1
    """Fraction of image embeddings replaced by a learned null embedding, for guidance."""
    text_dropout: Probability = 0.5
    """Fraction of text encodings replaced by a learned null encoding, for guidance."""
    embedding_noise: Probability = 0.5
    """Largest fraction of noise in the image embedding, itself a condition; 0: none."""


class LowResolution(Section):
    """Low-resolution conditioning of an up-sampler: the augmentation of the image while training."""

    downsample: Literal["area", "nearest"] = "area"
    """How the larger image is reduced to the low-resolution one."""
    blur: Probability = 0.5
    """Fraction of low-resolution images that are blurred."""
    blur_sigma: Annotated[tuple[float, float], Field(strict=False)] = (0.6, 0.6)
    """Smallest and largest standard deviation of the blur, in pixels."""
    blur_kernel: Annotated[int, Field(ge=1)] = 3
    """Pixels of the kernel's side, odd."""
    noise: Probability = 0.0
    """Largest fraction of noise in the low-resolution image, itself a condition; 0: none."""
    crop: Positive | None = None
    """Pixels, height and width, of random squares to train on; null: whole images."""

    def _misfits(self) -> Iterator[str]:
        if not 0 < self.blur_sigma[0] <= self.blur_sigma[1]:
            yield "blur_sigma must be the smallest and the largest value, above 0"
        if self.blur_kernel % 2 == 0:
            yield f"blur_kernel ({self.blur_kernel}) must be odd"


class Augment(Section):
    """The augmentation of images in training, the same for small and large ones; CLIP sees the changed image."""

    mirror: Probability | None = None
    """Probability of the mirror image, 0.5 in DALLE2-pytorch; null: 0.5 for images whose source has `mirror`."""
    scale: Annotated[tuple[Area, Area], Field(strict=False)] | None = None
    """Smallest and largest area of a random resized crop, 0.08 and 1.0 in torchvision; null: whole images."""
    ratio: Annotated[tuple[Ratio, Ratio], Field(strict=False)] = (0.75, 4 / 3)
    """Smallest and largest width of the crop in terms of its height."""

    def _misfits(self) -> Iterator[str]:
        for name in ("scale", "ratio"):
            if (pair := getattr(self, name)) is not None and pair[0] > pair[1]:
                yield f"{name} must be the smallest and the largest value: {pair[0]} is above {pair[1]}"

    @property
    def active(self) -> str | None:
        """The key that changes images regardless of their source, or None."""
        return "scale" if self.scale is not None else "mirror" if self.mirror else None


class Grids(Section):
    """The grids while training: images of both splits, and samples from their conditions."""

    images: Positive = 10
    """Images drawn from the validation split, and the same number from the train split."""
    guidance: Annotated[float, Field(ge=0)] | None = None
    """Scale of guidance; null: 2.0 if every condition has dropout, else none."""
    solver: Solver | None = None
    """See `sample_decoder.common.solver`; null: ddim for gaussian, euler for flow."""
    steps: Steps = 20
    """Steps of the solver, for gaussian at most `timesteps`."""

    def sampling(self, diffusion: Diffusion, timesteps: float) -> Sampling:
        """Return their sampling settings without guidance; Gaussian diffusion uses at most all timesteps."""
        steps = self.steps
        if diffusion.objective == "gaussian" and isinstance(steps, int):
            steps = min(steps, int(timesteps))
        return Sampling.model_validate({"solver": self.solver or SOLVERS[diffusion.objective][0], "steps": steps})


class UNet(Section):
    """One U-Net of the cascade.

    weights: instead of `train_decoder.training.init.folder`, since each U-Net has its own weights.
    training: without `threads` and `processes`, which the stage needs before it knows its U-Net.
    """

    size: Positive = 8
    """Pixels, height and width, of its images; that of the largest U-Net is `ingest.image_size`."""
    low_size: Positive | None = None
    """Pixels of the images that it enlarges, the size of another U-Net; null: none."""
    embeddings: str = NO_FILE
    """data/embeddings: stored embeddings of CLIP are the condition; data/none: none, or `clip`."""
    clip: str = NO_FILE
    """models/clip: embeddings are computed while training, for collections too large to store them; data/none."""
    weights: str = NO_FILE
    """A folder with initial weights, say models/decoder/base of another run; data/none: random ones."""
    frozen: bool = False
    """true: not trained; it has the initial weights, and without any it is left out of the cascade."""
    model: Model = Model.model_construct()
    """Size of the network, and the inputs of its conditions."""
    diffusion: UNetDiffusion = UNetDiffusion.model_construct()
    """Objective and noise schedule."""
    low: LowResolution = LowResolution.model_construct()
    """For an up-sampler: augmentation of the low-resolution condition in training."""
    augment: Augment = Augment.model_construct()
    """Mirror images and random crops in training; not with stored embeddings, those of the unchanged images."""
    grids: Grids = Grids.model_construct()
    """Grids while training."""
    training: Annotated[Overrides, AfterValidator(partial(require_known, own=OWN_TRAINING, owner="a U-Net"))] = {}
    """The keys of `train_decoder.training` that have another value for this U-Net."""

    @property
    def image_conditioned(self) -> bool:
        """Whether it is conditioned on the image embedding."""
        return bool(self.model.image_tokens or self.model.image_to_time or self.model.image_map)

    @property
    def conditioned(self) -> bool:
        """Whether it is conditioned on CLIP's embeddings at all."""
        return self.image_conditioned or self.model.text_tokens

    def _misfits(self) -> Iterator[str]:
        low, size = self.low_size, self.size
        if low is not None and self.low.blur and self.low.blur_kernel // 2 >= low:
            yield f"low.blur_kernel ({self.low.blur_kernel}) must be {2 * low - 1} at most, for low_size {low}"
        yield from self._unfit_sizes(low, size, self.low.crop)
        yield from self._unfit_conditions()

    def _unfit_sizes(self, low: int | None, size: int, crop: int | None) -> Iterator[str]:
        if low is not None and (low >= size or size % low):
            yield f"low_size ({low}) must be below size ({size}) and divide it"
        if crop is None:
            return
        if low is None:
            yield "low.crop is for up-samplers, which have a low_size: leave it empty"
        elif crop > size or crop * low % size:
            yield f"low.crop ({crop}) must be at most size ({size}), and a multiple of size / low_size"
        if self.model.image_map:
            yield "model.image_map needs whole images, but low.crop cuts out squares: remove one of them"

    def _unfit_conditions(self) -> Iterator[str]:
        named = [key for key in ("embeddings", "clip") if getattr(self, key) != NO_FILE]
        if self.conditioned and len(named) != 1:
            yield (
                f"{_READERS} need CLIP: set either `embeddings` to data/embeddings or, to compute them in training, "
                f"`clip` to models/clip, and the other to {NO_FILE}"
            )
        if not self.conditioned and named:
            yield f"`{named[0]}` is {getattr(self, named[0])}, but none of {_READERS} reads it: set it to {NO_FILE}"
        if (key := self.augment.active) and self.embeddings != NO_FILE and self.image_conditioned:
            yield (
                f"augment.{key} changes the images, but `embeddings` ({self.embeddings}) are of the unchanged "
                f"images: remove augment.{key}, or set `embeddings` to {NO_FILE} and `clip` to models/clip"
            )
        if self.diffusion.embedding_noise and not self.image_conditioned:
            yield (
                "diffusion.embedding_noise needs an image embedding, which model.image_tokens, model.image_to_time or "
                "model.image_map reads: set one of these, or set it to 0.0"
            )
