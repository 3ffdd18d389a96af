"""The sections that sampling and scoring a generator read."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, create_model, field_validator, model_validator

from darkroom.models.kinds import GENERATORS
from darkroom.params.reference_stats import ClipFile, Dinov2, Inception
from darkroom.params.run import Run
from darkroom.params.section import NO_FILE, Positive, Section, Seed


class BitsSettings(Section):
    """Bits of latents under the generator, of codes exact, else an upper bound, if both folders are set."""

    generator: str = NO_FILE
    """models/generator, autoregressive or of Gaussian diffusion: also score bits per dim; data/none: no."""
    latents: str = NO_FILE
    """data/latents; data/none: no bits per dim."""
    split: Literal["train", "val", "test"] = "test"
    """Split of the latents."""
    images: Positive = 100
    """Latents, drawn from the split; each passes the network once for each timestep, or as codes once."""
    batch: Positive = 50
    """Latents in a forward pass."""
    seed: Seed = 0
    """Seed of the noise, which codes do not need."""

    def _misfits(self) -> Iterator[str]:
        if (self.generator == NO_FILE) != (self.latents == NO_FILE):
            yield f"generator ({self.generator}) and latents ({self.latents}) must be set together: set both, or none"

    @property
    def enabled(self) -> bool:
        """Whether bits per dim are scored."""
        return self.generator != NO_FILE


class CopiesSettings(Section):
    """The number of images to search for among the training images."""

    images: Annotated[int, Field(ge=0)] = 1000
    """Generated images, drawn at random, and at most the same number of held-out ones; 0: no such score."""


class DiversitySettings(Section):
    """The number of pairs of images of one class to compare."""

    pairs: Annotated[int, Field(ge=0)] = 500
    """Pairs of generated images of one class, drawn at random, and at most the same number of held-out ones; 0: no
    such score."""


class ScoreGenerator(Section):
    """Standard errors, the search for copies of training images, and diversity."""

    threads: Positive = 1
    """CPU threads."""
    batch: Positive = 64
    """Images in a forward pass."""
    blocks: Annotated[int, Field(ge=2)] = 10
    """Blocks of the jackknife that gives the standard errors; fewer where each would have fewer than two images."""
    copies: CopiesSettings = CopiesSettings.model_construct()
    """Memorisation: copies of training images among the generated ones."""
    diversity: DiversitySettings = DiversitySettings.model_construct()
    """Differences between generated images of one class, compared with real ones."""


class ScoreDiffusion(ScoreGenerator):
    """Standard errors, and whether bits per dim and the diversity by LPIPS are scored."""

    lpips: Literal["none", "lpips"] = "none"
    """lpips: also measure diversity by LPIPS, which approximates human judgement."""
    vgg16: str = NO_FILE
    """For lpips, a file with torchvision's weights of VGG16; data/none: download them."""
    bits: BitsSettings = BitsSettings.model_construct()
    """Bits of stored latents: of codes exact, else an upper bound per dim."""


class Networks(Section):
    """The part of `reference_stats` with the sources of published weights."""

    inception: Inception
    dinov2: Dinov2 = Dinov2.model_construct()
    clip: ClipFile = ClipFile.model_construct()


class ScoreParams(Section):
    """What dvc.yaml gives to `score_generator`."""

    run: Run
    reference_stats: Networks
    score_generator: ScoreDiffusion


class Common(Section):
    """The number of images and the weights, for all kinds."""

    seed: Seed = 1
    """Seed of the initial noise; image i depends on (seed, i) alone."""
    threads: Positive = 1
    """CPU threads of a process."""
    processes: Positive = 1
    """Processes that share the batches, one for each device; the same bytes for any number."""
    images: Positive = 1000
    """Number of images; null: the sum of `labels`, if these are numbers by class."""
    labels: Literal["balanced", "frequency"] | dict[str, Positive] | None = None
    """Class of image i: frequency (as in training; null), balanced (i modulo their number), or numbers by class."""
    split: Literal["train", "val", "test"] = "test"
    """Split of the conditions, stored embeddings or captions, drawn at random."""
    batch: Positive = 125
    """Images in a forward pass, the last one padded."""
    weights: Literal["ema", "raw"] = "ema"
    """Averaged weights (ema), or those of the last optimizer step (raw)."""
    checkpoint: Positive | None = None
    """Images seen by the weights, one of those that the training's save_every kept; null: its end."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """fp32, or autocast of the generator to bf16; the tokenizer decodes in fp32."""
    tf32: bool = False
    """On NVIDIA GPUs: multiply float32 with 10 bits of the mantissa instead of 23."""
    compile: bool = False
    """torch.compile of the generator, with fixed shapes."""
    shard_size: Positive = 1000
    """Images in a shard."""
    npz: bool = False
    """Also write samples.npz, which ADM's evaluator reads: arr_0, uint8 (N, H, W, C), grey as three channels."""

    @model_validator(mode="before")
    @classmethod
    def _summed(cls, values: Any) -> Any:
        """Set `images` to the sum of the numbers by class."""
        labels = values.get("labels") if isinstance(values, Mapping) else None
        if not isinstance(labels, Mapping) or values.get("images") is not None:
            return values
        counts = [count for count in labels.values() if isinstance(count, int)]
        return {**values, "images": max(1, sum(counts))}  # other values are refused below

    @field_validator("labels", mode="before")
    @classmethod
    def _choice(cls, value: Any) -> Any:
        """Refuse a value that is neither a name nor numbers by class, in one sentence."""
        if value in (None, "balanced", "frequency"):
            return value
        if not isinstance(value, Mapping) or not value:
            raise ValueError("it is balanced, frequency, or a mapping from class names to numbers of images")
        if all(type(name) is int for name in value):  # YAML and `dvc exp run -S` read names of digits so
            value = {str(name): count for name, count in value.items()}
        for name, count in value.items():
            if not isinstance(name, str):
                raise ValueError(f"the class {name} must be a string: put it in quotes")
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise ValueError(f"the number of images of the class {name} is {count}, but must be 1 or more")
        return value

    def _misfits(self) -> Iterator[str]:
        if isinstance(self.labels, dict) and self.images != (total := sum(self.labels.values())):
            yield f"images is {self.images}, but labels requests {total} images: set images to {total}, or to null"

    def protocol(self) -> dict[str, Any]:
        """Return the settings that the pixels depend on, for the manifest, without the source of the conditions."""
        return self.model_dump(exclude={"threads", "processes", "shard_size", "npz", "split"})


_sections: dict[str, Any] = {kind: (GENERATORS.load("sampling", kind) | None, None) for kind in GENERATORS}


class SampleGenerator(create_model("Sampled", __base__=Section, **_sections)):  # type: ignore[misc]
    """The images, and for each kind their sampling. Only the chosen kind's section is a dependency."""

    common: Common = Common.model_construct()
    """The images and the weights, for all kinds."""


class Distilled(Section):
    """The part of `train_distilled` that decides whether the distilled network samples."""

    kind: str = "none"


class Params(Section):
    """What dvc.yaml gives to `sample_generator`."""

    run: Run
    sample_generator: SampleGenerator
    train_distilled: Distilled = Distilled.model_construct()
