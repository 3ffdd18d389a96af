"""The sections that `train_decoder` reads: what all U-Nets of the cascade share, and each by itself."""

from typing import Annotated, Any

from pydantic import Field, model_validator

from darkroom.diffusion.settings import Timesteps, require_fit
from darkroom.models.decoder.unet_settings import UNet
from darkroom.params.evaluate import Evaluate
from darkroom.params.numbers import NO_FILE, Fraction, PartName, Positive, Rate, Seed, Warmup
from darkroom.params.overrides import merged
from darkroom.params.run import Run
from darkroom.params.section import Section
from darkroom.params.training import Optimizer, Training


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
    """The cascade. A stage sees what all U-Nets share, and its own."""

    tokenizer: str = NO_FILE
    """models/tokenizer: the decoder makes latents, with one U-Net of their size; data/none: pixels."""
    latents: str = NO_FILE
    """data/latents: stored latents are read; data/none: images are encoded while training."""
    timesteps: Timesteps = 1000
    """gaussian: length of the noise schedule of all U-Nets."""
    evaluate: Evaluate = Evaluate()
    """Scores of the averaged weights of each U-Net while training, drawn as curves; they decide nothing."""
    training: DecoderTraining = DecoderTraining()
    """The keys of `training` that have another value here."""
    unets: Annotated[dict[PartName, UNet], Field(min_length=1)]
    """The U-Nets by name, a cascade: the first makes small images, each of the others enlarges those of another."""

    def training_of(self, name: str) -> Training:
        """Return the settings of a U-Net's training: those of the section, with what its own section has otherwise."""
        unet = self.unets[name]
        init = {**self.training.init.model_dump(), "folder": unet.weights}
        return merged(self.training, {**unet.training, "init": init}, f"unets.{name}.training")

    def cascade(self, clip: bool) -> dict[str, UNet]:
        """Return the U-Nets that will have weights: their own, or some to begin with.

        Args:
            clip: whether there is a CLIP; without one, those that are conditioned on it are left out.
        """
        return {
            name: unet
            for name, unet in self.unets.items()
            if (unet.trained or unet.weights != NO_FILE) and (clip or not unet.conditioned)
        }

    @model_validator(mode="after")
    def _begins(self) -> "TrainDecoder":
        init = self.training.init
        if init.folder != NO_FILE or init.url is not None:
            key, value = ("folder", init.folder) if init.url is None else ("url", init.url)
            raise ValueError(
                f"training.init.{key} is {value}, and each U-Net has weights of its own: name a folder with them as "
                f"`unets.NAME.weights`, and here nothing (folder: {NO_FILE}, url: null)"
            )
        return self

    @model_validator(mode="after")
    def _trainable(self) -> "TrainDecoder":
        for name in self.unets:
            self.training_of(name)
        return self

    @model_validator(mode="after")
    def _previewed(self) -> "TrainDecoder":
        for name, unet in self.unets.items():
            how = unet.grids.sampling(unet.diffusion, self.timesteps)
            source, timesteps = f"unets.{name}.diffusion", ("timesteps", self.timesteps)
            require_fit(f"unets.{name}.grids", how, source, unet.diffusion, timesteps)
        return self

    @model_validator(mode="after")
    def _space(self) -> "TrainDecoder":
        if self.latents != NO_FILE and self.tokenizer == NO_FILE:
            raise ValueError("latents are named, and no tokenizer whose they are: it is models/tokenizer")
        if self.tokenizer != NO_FILE and any(unet.low_size is not None for unet in self.unets.values()):
            raise ValueError("a decoder of latents has one U-Net, of the latent's size: take out the up-samplers")
        changed = {name: unet.augment.asked for name, unet in self.unets.items() if unet.augment.asked}
        if self.latents != NO_FILE and changed:
            name, key = next(iter(changed.items()))
            raise ValueError(
                f"unets.{name}.augment.{key} changes the images, and `latents` ({self.latents}) are of the images as "
                f"they are: take it out, or set latents to {NO_FILE}"
            )
        asked = [name for name, unet in self.unets.items() if unet.clip != NO_FILE and unet.told_image]
        if self.latents != NO_FILE and asked:
            raise ValueError(
                f"unets.{asked[0]}.clip embeds images while training, and with stored latents none are read: set "
                f"latents to {NO_FILE}, or take stored `embeddings` in place of `clip`"
            )
        return self


class Names(Section):
    """The names of the U-Nets: what stages that read the decoder are given of `train_decoder`."""

    unets: dict[PartName, Any]


class Params(Section):
    """What dvc.yaml gives to `train_decoder`."""

    run: Run
    train_decoder: TrainDecoder

    @property
    def idle(self) -> str | None:
        """Why nothing is trained by what its own section says; None: the U-Net that the stage is given is."""
        return None if any(unet.trained for unet in self.train_decoder.unets.values()) else "`trained` is false"
