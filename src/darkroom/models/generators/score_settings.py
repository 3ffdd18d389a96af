"""The sections that `score_generator` reads."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from darkroom.params.reference_stats import ClipFile, Dinov2, Inception
from darkroom.params.run import Run
from darkroom.params.section import NO_FILE, Positive, Section, Seed


class BitsSettings(Section):
    """Bits per dim of latents under the generator, an upper bound, where both folders are named."""

    generator: str = NO_FILE
    """models/generator, of Gaussian diffusion: bits per dim are scored too; data/none: they are not."""
    latents: str = NO_FILE
    """data/latents; data/none: no bits per dim."""
    split: Literal["train", "val", "test"] = "test"
    """Split of the latents."""
    images: Positive = 100
    """Latents, drawn of the split; each is put through the network once for each timestep."""
    batch: Positive = 50
    """Latents in a forward pass."""
    seed: Seed = 0
    """Seed of the noise."""

    @model_validator(mode="after")
    def _both(self) -> "BitsSettings":
        if (self.generator == NO_FILE) != (self.latents == NO_FILE):
            raise ValueError(
                f"generator ({self.generator}) and latents ({self.latents}) go together: models/generator and "
                f"data/latents, or {NO_FILE} both"
            )
        return self

    @property
    def wanted(self) -> bool:
        """Whether bits per dim are scored."""
        return self.generator != NO_FILE


class CopiesSettings(Section):
    """How many images are looked for among the training images, and drawn beside what was found."""

    images: Annotated[int, Field(ge=0)] = 1000
    """Generated images, drawn at random, and at most as many held-out ones; 0: none, and no such score."""
    pairs: Positive = 8
    """Closest pairs in each picture."""


class DiversitySettings(Section):
    """How many pairs of images of one class are compared with each other."""

    pairs: Annotated[int, Field(ge=0)] = 500
    """Pairs of generated images of one class, drawn at random, and at most as many of held-out ones; 0: none, and no
    such score."""


class ScoreGenerator(Section):
    """How the standard errors are made, whether copies of training images are looked for, and diversity."""

    threads: Positive = 1
    """CPU threads."""
    batch: Positive = 64
    """Images in a forward pass."""
    blocks: Annotated[int, Field(ge=2)] = 10
    """Blocks of the jackknife that gives the standard errors; fewer where each would have fewer than two images."""
    copies: CopiesSettings = CopiesSettings()
    """Memorisation: copies of training images among the generated ones."""
    diversity: DiversitySettings = DiversitySettings()
    """How different generated images of one class are, beside real ones."""


class ScoreDiffusion(ScoreGenerator):
    """How the standard errors are made, and whether bits per dim and the diversity by LPIPS are scored."""

    lpips: Literal["none", "lpips"] = "none"
    """lpips: also measure diversity by LPIPS, as people judge images."""
    vgg16: str = NO_FILE
    """For lpips, a file with torchvision's weights of VGG16; data/none: download them."""
    bits: BitsSettings = BitsSettings()
    """Bits per dim of stored latents, an upper bound."""


class Networks(Section):
    """Of `reference_stats`, where the weights of published networks come from."""

    inception: Inception
    dinov2: Dinov2 = Dinov2()
    clip: ClipFile = ClipFile()


class Params(Section):
    """What dvc.yaml gives to `score_generator`."""

    run: Run
    reference_stats: Networks
    score_generator: ScoreDiffusion
