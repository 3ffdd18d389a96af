"""The sections that the stages of the decoder read: the shared one of all U-Nets, and those of each U-Net."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from darkroom.diffusion.settings import Probability, Sampling, Solver, Steps, Timesteps, unfit
from darkroom.models.decoder.unet_settings import UNet
from darkroom.models.generators.sample_settings import Networks, ScoreGenerator
from darkroom.params.kinds import merged, require_known
from darkroom.params.run import Run
from darkroom.params.section import (
    NO_FILE,
    Fraction,
    Overrides,
    PartName,
    Positive,
    Rate,
    Section,
    Seed,
    Warmup,
    Weight,
)
from darkroom.params.training import Evaluate, Optimizer, Training


class DecoderTraining(Training):
    """The training of a U-Net."""

    seed: Seed = 3
    images: Positive = 149_952
    learning_rate: Rate = 0.003
    warmup: Warmup = 12_480
    optimizer: Optimizer = "muon"
    ema_decay: Fraction = 0.995
    log_every: Positive = 3008
    validate_every: Positive = 14_976


class TrainDecoder(Section):
    """The cascade. A stage sees the shared keys and those of its own U-Net."""

    tokenizer: str = NO_FILE
    """models/tokenizer: the decoder generates latents, with one U-Net of their size; data/none: pixels."""
    latents: str = NO_FILE
    """data/latents: stored latents are read; data/none: images are encoded while training."""
    timesteps: Timesteps = 1000
    """gaussian: length of the noise schedule of all U-Nets."""
    evaluate: Evaluate = Evaluate.model_construct()
    """Scores of the averaged weights of each U-Net while training, drawn as curves, without effect on the training."""
    training: DecoderTraining = DecoderTraining.model_construct()
    """The keys of `training` that have another value here."""
    unets: Annotated[dict[PartName, UNet], Field(min_length=1)]
    """The U-Nets by name, a cascade: the first generates small images, the others enlarge those of another."""

    def training_of(self, name: str) -> Training:
        """Return the training settings of a U-Net: those of the section, overridden by its own."""
        unet = self.unets[name]
        init = {**self.training.init.model_dump(), "folder": unet.weights}
        return merged(self.training, {**unet.training, "init": init}, f"unets.{name}.training")

    def cascade(self, clip: bool) -> dict[str, UNet]:
        """Return the U-Nets that will have weights, trained or initial ones.

        Args:
            clip: whether there is a CLIP; without one, U-Nets that are conditioned on it are left out.
        """
        return {
            name: unet
            for name, unet in self.unets.items()
            if (not unet.frozen or unet.weights != NO_FILE) and (clip or not unet.conditioned)
        }

    def _misfits(self) -> Iterator[str]:
        if self.training.init.folder != NO_FILE or self.training.init.url is not None:
            yield "each U-Net has its own weights: name them as `unets.NAME.weights`, and none in training.init"
        for name, unet in self.unets.items():
            self.training_of(name)
            sampling = unet.grids.sampling(unet.diffusion, self.timesteps)
            source, timesteps = f"unets.{name}.diffusion", ("timesteps", self.timesteps)
            yield from unfit(f"unets.{name}.grids", sampling, source, unet.diffusion, timesteps)
            if self.tokenizer != NO_FILE and unet.low_size is not None:
                yield "a decoder of latents has one U-Net, of the latent's size: remove the up-samplers"
            if self.latents == NO_FILE:
                continue
            if unet.augment.active:
                yield (
                    f"unets.{name}.augment.{unet.augment.active} changes the images, but `latents` ({self.latents}) "
                    f"are of the unchanged images: remove it, or set latents to {NO_FILE}"
                )
            if unet.clip != NO_FILE and unet.image_conditioned:
                yield f"unets.{name}.clip reads images, but with stored latents none are read: set latents to {NO_FILE}"
        if self.latents != NO_FILE and self.tokenizer == NO_FILE:
            yield "latents are set without a tokenizer: set tokenizer to models/tokenizer"


class Names(Section):
    """The names of the U-Nets: the only key of `train_decoder` for stages that read the decoder."""

    unets: dict[PartName, Any]


class Params(Section):
    """What dvc.yaml gives to `train_decoder`."""

    run: Run
    train_decoder: TrainDecoder

    @property
    def idle(self) -> str | None:
        """The reason why the stage trains no U-Net, or None."""
        return "`frozen` is true" if all(unet.frozen for unet in self.train_decoder.unets.values()) else None


class UNetSampling(Sampling):
    """How a U-Net is sampled."""

    solver: Solver = "dpm"
    steps: Steps = 16
    guidance: Weight = 2.0
    """Scale of guidance, away from the network without its condition; 1: none."""
    threshold: Literal["clip", "dynamic", "none"] = "clip"
    """How pixels are kept in their range: clip, dynamic (Imagen) or not at all."""
    percentile: Annotated[float, Field(gt=0, le=1)] = 0.95
    """dynamic: percentile of the pixels' absolute values, as a fraction."""
    embedding_noise: Probability = 0.0
    """Fraction of noise in the image embedding, at most what the U-Net was trained on."""
    low_noise: Probability = 0.1
    """Fraction of noise in the low-resolution condition, at most what the U-Net was trained on."""


class Pictures(Section):
    """Numbers of test images in further pictures; 0: no such picture."""

    variations: Annotated[int, Field(ge=0)] = 6
    """Test images that are decoded eight times, from different noise."""
    interpolations: Annotated[int, Field(ge=0)] = 4
    """Pairs of images with eight steps on the arc between their embeddings."""
    inpainted: Annotated[int, Field(ge=0)] = 0
    """Images whose middle is in-painted (RePaint)."""
    resamples: Positive = 3
    """How often each step of in-painting is repeated."""


class Decoding(Section):
    """How each U-Net is sampled."""

    batch: Positive = 64
    """Images in a forward pass, the last one padded."""
    weights: Literal["ema", "raw"] = "ema"
    """Averaged weights (ema), or those of the last optimizer step (raw)."""
    common: UNetSampling = UNetSampling.model_construct()
    """How every U-Net is sampled."""
    unets: dict[PartName, Overrides] = {}
    """For each U-Net by name, the keys of `common` that have another value."""
    shard_size: Positive = 1000
    """Images in a shard."""

    def sampling(self, name: str) -> UNetSampling:
        """Return the sampling settings of a U-Net: `common`, overridden by its own section."""
        return merged(self.common, self.unets.get(name, {}), f"unets.{name}")

    def _misfits(self) -> Iterator[str]:
        for name, own in self.unets.items():
            require_known(own, UNetSampling.model_fields, "a U-Net")
            self.sampling(name)
        yield from ()


class SampleDecoder(Decoding):
    """The number of images, their split, and the sampling of each U-Net."""

    seed: Seed = 1
    """Seed of all noise; image i depends on (seed, i) alone."""
    threads: Positive = 1
    """CPU threads."""
    split: Literal["test", "val", "train"] = "test"
    """Split whose image embeddings are decoded."""
    images: Positive | None = 256
    """Number of embeddings that are decoded, drawn from the split; null: all."""
    pictures: Pictures = Pictures.model_construct()
    """Further pictures besides the grid, from the first images; 0: none."""


class SampleParams(Section):
    """What dvc.yaml gives to `sample_decoder`."""

    run: Run
    train_decoder: Names
    sample_decoder: SampleDecoder


class Evaluators(Section):
    """The evaluators that compare an image with its original and its caption, also for `score_text`."""

    lpips: Literal["none", "lpips"] = "none"
    """lpips: also measure the perceptual distance of each image from its original, and within classes."""
    vgg16: str = NO_FILE
    """For lpips, a file with torchvision's weights of VGG16; data/none: download them."""
    clip: str = "models/clip"
    """CLIP that measures the similarity of image and caption: models/clip, or better a CLIP that was no condition, as
    a file like OpenAI's ViT-B-32.pt; data/none: no similarity."""
    attributes: Literal["none", "scenes"] = "none"
    """scenes: also the fractions of images whose colour, form, size and position are those of the caption."""


class ScoreDecoder(ScoreGenerator, Evaluators):
    """The standard errors, and the evaluators."""


class ScoreParams(Section):
    """What dvc.yaml gives to `score_decoder`."""

    run: Run
    reference_stats: Networks
    score_decoder: ScoreDecoder
