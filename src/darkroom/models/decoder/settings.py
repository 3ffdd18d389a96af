"""The sections that `train_decoder` reads: what all U-Nets of the cascade share, and each by itself."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from darkroom.diffusion.settings import Probability, ScheduleName
from darkroom.params.numbers import NO_FILE, PartName, Positive, Share, Weight
from darkroom.params.overrides import OWN_TRAINING, Overrides, merged, require_known
from darkroom.params.run import Run
from darkroom.params.section import Section
from darkroom.params.training import Training


class Model(Section):
    """The size of a U-Net, and by which ways its conditions enter."""

    channels: Annotated[list[Positive], Field(min_length=1)]
    attention: list[bool]
    layers: Positive
    head_dim: Positive
    norm_groups: Positive
    patch: Positive
    dropout: Share
    image_tokens: Annotated[int, Field(ge=0)]
    image_to_time: bool
    image_map: Annotated[int, Field(ge=0)]
    text_tokens: bool
    self_condition: bool

    @model_validator(mode="after")
    def _divisible(self) -> "Model":
        if len(self.attention) != len(self.channels):
            raise ValueError(f"attention has {len(self.attention)} levels, and channels {len(self.channels)}")
        for channels, attention in zip(self.channels, self.attention, strict=True):
            if channels % self.norm_groups:
                raise ValueError(f"norm_groups ({self.norm_groups}) must divide each of channels ({channels})")
            if attention and channels % self.head_dim:
                raise ValueError(f"head_dim ({self.head_dim}) must divide the channels of a level with attention")
        if (self.image_tokens or self.text_tokens) and not any(self.attention):
            raise ValueError("image_tokens and text_tokens are read by attention, and no level has it")
        return self


class Diffusion(Section):
    """What is predicted, under which noise, and how the losses are weighted."""

    schedule: ScheduleName
    target: Literal["eps", "x0", "v"]
    loss: Literal["l1", "l2", "huber"]
    learned_variance: bool
    variance_range: Literal["linear", "sigmoid"]
    bound_weight: Weight
    p2_gamma: Weight
    p2_k: Annotated[float, Field(gt=0)]
    min_snr: Annotated[float, Field(gt=0)] | None
    image_dropout: Probability
    text_dropout: Probability
    embedding_noise: Probability

    @model_validator(mode="after")
    def _weighted_once(self) -> "Diffusion":
        if self.p2_gamma and self.min_snr is not None:
            raise ValueError("p2_gamma and min_snr weight the same loss: set p2_gamma to 0.0, or leave min_snr empty")
        return self


class Low(Section):
    """What becomes of the low-resolution image that an up-sampler is told."""

    downsample: Literal["area", "nearest"]
    blur: Probability
    blur_sigma: Annotated[tuple[float, float], Field(strict=False)]
    blur_kernel: Annotated[int, Field(ge=1)]
    noise: Probability
    crop: Positive | None

    @model_validator(mode="after")
    def _blurs(self) -> "Low":
        if not 0 < self.blur_sigma[0] <= self.blur_sigma[1]:
            raise ValueError("blur_sigma is the smallest and the largest, above 0")
        if self.blur_kernel % 2 == 0:
            raise ValueError(f"blur_kernel ({self.blur_kernel}) must be odd")
        return self


class UNet(Section):
    """One U-Net of the cascade.

    weights: a folder with weights to begin with, in place of `common.init.folder`, since each U-Net has its own.
    training: keys of `common` that have another value for this U-Net; not `threads` and `processes`, which the stage
        needs before it knows which U-Net it trains.
    """

    size: Positive
    low_size: Positive | None
    embeddings: str
    clip: str
    weights: str
    trained: bool
    model: Model
    diffusion: Diffusion
    low: Low
    training: Overrides

    @field_validator("training")
    @classmethod
    def _known(cls, values: dict[str, Any]) -> dict[str, Any]:
        return require_known(values, OWN_TRAINING, "a U-Net")

    @property
    def told_image(self) -> bool:
        """Whether it is told the image embedding."""
        return bool(self.model.image_tokens or self.model.image_to_time or self.model.image_map)

    @property
    def conditioned(self) -> bool:
        """Whether it is told of CLIP's embeddings at all."""
        return self.told_image or self.model.text_tokens

    @model_validator(mode="after")
    def _fits(self) -> "UNet":
        step = self.model.patch * 2 ** (len(self.model.channels) - 1)
        if self.size % step:
            raise ValueError(f"size ({self.size}) must be a multiple of {step}: patch times 2 for each level but one")
        if self.low_size is not None and (self.low_size >= self.size or self.size % self.low_size):
            raise ValueError(f"low_size ({self.low_size}) must be below size ({self.size}) and divide it")
        if self.low.crop is not None and self.low_size is None:
            raise ValueError("low.crop is for up-samplers, which have a low_size: leave it empty")
        return self

    @model_validator(mode="after")
    def _blurred(self) -> "UNet":
        if self.low_size is not None and self.low.blur and self.low.blur_kernel // 2 >= self.low_size:
            raise ValueError(
                f"low.blur_kernel ({self.low.blur_kernel}) reaches beyond mirrored edges of {self.low_size} pixels, "
                f"low_size: make it {2 * self.low_size - 1} at most"
            )
        return self

    @model_validator(mode="after")
    def _crops(self) -> "UNet":
        crop, low = self.low.crop, self.low_size
        step = self.model.patch * 2 ** (len(self.model.channels) - 1)
        if crop is not None and self.model.image_map:
            raise ValueError("model.image_map is of whole images, and low.crop cuts squares out: leave one of them out")
        if crop is not None and low is not None and (crop > self.size or crop % step or crop * low % self.size):
            raise ValueError(
                f"low.crop ({crop}) must be at most size ({self.size}), a multiple of {step}, and stand for whole "
                "pixels of the low-resolution image"
            )
        return self

    @model_validator(mode="after")
    def _told(self) -> "UNet":
        named = [key for key in ("embeddings", "clip") if getattr(self, key) != NO_FILE]
        if self.conditioned and len(named) != 1:
            raise ValueError(
                "image_tokens, image_to_time, image_map or text_tokens ask for CLIP: name `embeddings` "
                "(data/embeddings) or, to compute them while training, `clip` (models/clip), and one of them only: the "
                f"other is {NO_FILE}"
            )
        if not self.conditioned and named:
            raise ValueError(
                f"`{named[0]}` is named, and no image_tokens, image_to_time, image_map or text_tokens reads it: set "
                f"it to {NO_FILE}"
            )
        if self.diffusion.embedding_noise and not self.told_image:
            raise ValueError("diffusion.embedding_noise is of the image embedding, of which nothing is told")
        return self


class TrainDecoder(Section):
    """The cascade. A stage sees what all U-Nets share, and its own."""

    tokenizer: str
    latents: str
    timesteps: Annotated[int, Field(ge=2)]
    common: Training
    unets: Annotated[dict[PartName, UNet], Field(min_length=1)]

    def training_of(self, name: str) -> Training:
        """Return the settings of a U-Net's training: `common`, with what its own section has otherwise."""
        unet = self.unets[name]
        init = {**self.common.init.model_dump(), "folder": unet.weights}
        return merged(self.common, {**unet.training, "init": init}, f"unets.{name}.training")

    def cascade(self, clip: bool) -> dict[str, UNet]:
        """Return the U-Nets that will have weights: their own, or some to begin with.

        Args:
            clip: whether there is a CLIP; without one, those that are told of it are left out.
        """
        return {
            name: unet
            for name, unet in self.unets.items()
            if (unet.trained or unet.weights != NO_FILE) and (clip or not unet.conditioned)
        }

    @model_validator(mode="after")
    def _begins(self) -> "TrainDecoder":
        init = self.common.init
        if init.folder != NO_FILE or init.url is not None:
            key, value = ("folder", init.folder) if init.url is None else ("url", init.url)
            raise ValueError(
                f"common.init.{key} is {value}, and each U-Net has weights of its own: name a folder with them as "
                f"`unets.NAME.weights`, and here nothing (folder: {NO_FILE}, url: null)"
            )
        return self

    @model_validator(mode="after")
    def _trainable(self) -> "TrainDecoder":
        for name in self.unets:
            self.training_of(name)
        return self

    @model_validator(mode="after")
    def _space(self) -> "TrainDecoder":
        if self.latents != NO_FILE and self.tokenizer == NO_FILE:
            raise ValueError("latents are named, and no tokenizer whose they are: it is models/tokenizer")
        if self.tokenizer != NO_FILE and any(unet.low_size is not None for unet in self.unets.values()):
            raise ValueError("a decoder of latents has one U-Net, of the latent's size: take out the up-samplers")
        asked = [name for name, unet in self.unets.items() if unet.clip != NO_FILE and unet.told_image]
        if self.latents != NO_FILE and asked:
            raise ValueError(
                f"unets.{asked[0]}.clip embeds images while training, and with stored latents none are read: set "
                f"latents to {NO_FILE}, or take stored `embeddings` in place of `clip`"
            )
        return self


class Params(Section):
    """What dvc.yaml gives to `train_decoder`."""

    run: Run
    train_decoder: TrainDecoder

    @property
    def idle(self) -> str | None:
        """Why nothing is trained by what its own section says; None: the U-Net that the stage is given is."""
        return None if any(unet.trained for unet in self.train_decoder.unets.values()) else "`trained` is false"
