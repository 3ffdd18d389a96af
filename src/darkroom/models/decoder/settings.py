"""The sections that `train_decoder` reads: what all U-Nets of the cascade share, and each by itself."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from darkroom.artifacts.models import DECODER_FOLDER
from darkroom.diffusion.settings import Timesteps, require_fit
from darkroom.models.decoder.unet_settings import UNet
from darkroom.params.evaluate import Evaluate
from darkroom.params.kinds import merged
from darkroom.params.run import Run
from darkroom.params.section import NO_FILE, Fraction, PartName, Positive, Rate, Section, Seed, Warmup
from darkroom.params.training import Optimizer, Training

_OF_TEACHER = ("size", "low_size", "model", "diffusion")  # keys of a U-Net that one which distils it need not repeat


def teacher_of(weights: str) -> str:
    """Return the name of the U-Net of this decoder whose folder is named as weights; "": it is another folder."""
    return Path(weights).name if Path(weights).parent == DECODER_FOLDER else ""


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

    @property
    def distilled(self) -> dict[str, str]:
        """The U-Nets that distil another one and are trained, and of each the name of that one."""
        found = {name: unet for name, unet in self.unets.items() if unet.calls is not None and unet.trained}
        return {name: teacher_of(unet.weights) for name, unet in found.items()}

    def cascade(self, clip: bool) -> dict[str, UNet]:
        """Return the U-Nets that will have weights: their own, or some to begin with.

        Args:
            clip: whether there is a CLIP; without one, those that are conditioned on it are left out.
        """
        return {
            name: unet
            for name, unet in self.unets.items()
            if (unet.trained or (unet.weights != NO_FILE and unet.calls is None)) and (clip or not unet.conditioned)
        }

    @field_validator("unets", mode="before")
    @classmethod
    def _as_their_teachers(cls, unets: Any) -> Any:
        """Complete U-Nets that distil another of these by what that one is, where their own sections do not say it."""
        if not isinstance(unets, Mapping):
            return unets
        return {name: _like_its_teacher(unet, unets) for name, unet in unets.items()}

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


def _like_its_teacher(unet: Any, unets: Mapping[str, Any]) -> Any:
    """Return a U-Net as it was read, with the keys of the one that it distils which it leaves out; any other as it is.

    `diffusion.embedding_noise` stays its own: the stage of a U-Net sees no other section, and no manifest has it.
    """
    if not isinstance(unet, Mapping) or unet.get("calls") is None:
        return unet
    teacher = unets.get(teacher_of(str(unet.get("weights"))))
    if not isinstance(teacher, Mapping):
        return unet
    found = {**{key: teacher[key] for key in _OF_TEACHER if key in teacher}, **unet}
    for key in ("model", "diffusion"):
        if isinstance(theirs := teacher.get(key), Mapping) and isinstance(own := unet.get(key, {}), Mapping):
            found[key] = {name: value for name, value in theirs.items() if name != "embedding_noise"} | dict(own)
    return found


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
