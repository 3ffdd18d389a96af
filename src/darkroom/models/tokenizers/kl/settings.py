"""The sections of the tokenizers `kl` and `pretrained`: a KL autoencoder trained here, and a published one."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from darkroom.models.tokenizers.sections import Adversarial, Imported, Kind, Perceptual, undivided, unfit_losses
from darkroom.params.section import NO_FILE, Positive


class KL(Kind):
    """The KL autoencoder: diffusers' AutoencoderKL and its losses."""

    discrete: ClassVar[bool] = False

    patch: Positive = 1
    """Pixels, height and width, that the first layer reads as channels of one position; 1: as in latent diffusion."""
    channels: Annotated[list[Positive], Field(min_length=1)] = [32, 64, 64]
    """Width of each level; each but the last halves the resolution."""
    layers_per_block: Positive = 1
    """Residual layers in each level."""
    norm_groups: Positive = 16
    """Groups of the group norms."""
    latent_channels: Positive = 4
    """Channels of the latent."""
    reconstruction: Literal["mse", "l1"] = "mse"
    """Loss of the reconstruction."""
    kl_weight: Annotated[float, Field(ge=0)] = 0.0001
    """Weight of the KL term, per latent element."""
    perceptual: Perceptual = Perceptual.model_construct()
    """Perceptual loss: a distance in the features of a frozen network."""
    adversarial: Adversarial = Adversarial.model_construct()
    """Adversarial loss: a discriminator of patches."""

    @property
    def factor(self) -> int:
        """The downsampling factor of the latent: `patch`, and each level but the last halves the resolution."""
        return int(self.patch * 2 ** (len(self.channels) - 1))

    @property
    def whole_batch(self) -> bool:
        """Whether the discriminator's weight needs the whole batch."""
        return self.adversarial.whole_batch

    def _misfits(self) -> Iterator[str]:
        yield from undivided(self.norm_groups, self.channels)
        yield from unfit_losses(self.perceptual, self.adversarial)


CONFIG, WEIGHTS = "config.json", "diffusion_pytorch_model"  # as diffusers names them
PATCH = "_patch"  # key of `patch` in the configuration: diffusers keeps keys with an underscore, and ignores them


class Pretrained(Imported):
    """A published KL autoencoder in diffusers' format, used without training."""

    discrete: ClassVar[bool] = False
    name: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")] | None = "stabilityai/sd-vae-ft-ema"
    """Name on the Hub; null: `folder`."""
    revision: str | None = None
    """Commit, branch or tag on the Hub; null: the newest."""
    subfolder: str | None = None
    """Folder of the autoencoder in a whole pipeline, vae; null: no pipeline."""
    folder: str = NO_FILE
    """A local folder with config.json and safetensors; data/none: by name."""
    downsampling: Positive = 8
    """Pixels a side of one position of the latent: two to the power of its levels less one, times its `patch`."""
    image_channels: Positive = 3
    """Channels of its images."""

    @property
    def factor(self) -> int:
        """The downsampling factor of the latent; checked against the weights before the first output."""
        return self.downsampling

    def unfit(self, image_shape: tuple[int, int, int], batch: int) -> str | None:
        """Return why it does not fit images of shape (C, H, W), as far as known; None: it does."""
        if self.image_channels != image_shape[0]:
            return self._other_channels(self.image_channels, image_shape[0])
        return self.not_there() if self.name is None else None

    def not_there(self) -> str | None:
        """Return the error of missing files in `folder`, or None."""
        folder = Path(self.folder) / (self.subfolder or "")
        if not (folder / CONFIG).is_file():
            return f"{self.folder} holds no {CONFIG} of a diffusers autoencoder: set its folder and `subfolder`"
        if not any(folder.glob(f"{WEIGHTS}*.safetensors")):
            return f"{folder} has no weights: put {WEIGHTS}.safetensors beside {CONFIG}; other formats are not read"
        return None

    def misfit(self, config: Mapping[str, Any], image_shape: tuple[int, int, int]) -> str | None:
        """Return why an autoencoder of a configuration does not fit images of shape (C, H, W); None: it does."""
        source, channels = self.name or self.folder, image_shape[0]
        if (kind := config.get("_class_name")) != "AutoencoderKL":
            return f"{source} is a {kind}, but an AutoencoderKL is needed"
        patch = config.get(PATCH, 1)
        if (taken := config.get("in_channels", 3) // patch**2) != channels:
            return self._other_channels(taken, channels)
        factor = patch * 2 ** (len(config.get("block_out_channels", [64])) - 1)
        if factor != self.downsampling:
            return f"a latent position of {source} is {factor} x {factor} pixels: set `downsampling` to {factor}"
        return None

    def _other_channels(self, taken: int, channels: int) -> str:
        return (
            f"{self.name or self.folder} needs images of {taken} channels, but these have {channels}: set "
            "`ingest.channels` accordingly, or use another autoencoder (`image_channels`)"
        )

    READ_WITH = {"revision": ("name",)}

    def _misfits(self) -> Iterator[str]:
        if (self.name is None) == (self.folder == NO_FILE):
            yield f"set a name on the Hub or a folder, not both: an unset name is null, an unset folder {NO_FILE}"
        yield from self.untrained()
