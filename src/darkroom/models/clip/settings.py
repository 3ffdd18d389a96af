"""The sections that `train_clip` and `embed_clip` read, and their checks."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from darkroom.params.fits import refuse
from darkroom.params.reference_stats import Split
from darkroom.params.run import Run
from darkroom.params.section import NO_FILE, Betas, Fraction, PartName, Positive, Rate, Section, Seed, Warmup, Weight
from darkroom.params.training import Optimizer, Schedule, Training

Name = Literal[
    "RN50", "RN101", "RN50x4", "RN50x16", "RN50x64", "ViT-B/32", "ViT-B/16", "ViT-L/14", "ViT-L/14@336px"
]  # OpenAI's

RESNET_STEP = 32  # pixels, height and width, of one place in the last level of CLIP's residual network
OPENAI = 77  # tokens of a text that OpenAI's networks read
HEAD = 64  # width of an attention head, which `clip.load` assumes

# Pixels, height and width, of the input of OpenAI's networks; 224 for the others.
INPUT = {"RN50x4": 288, "RN50x16": 384, "RN50x64": 448, "ViT-L/14@336px": 336}
OPEN_CLIP_CONFIG = "open_clip_config.json"  # in a folder with a CLIP of open_clip

NO_CLIP = "`train_clip.source` is none"


class ClipModel(Section):
    """The sizes of the network of images, a transformer or a residual network, and of the transformer of texts."""

    image_network: Literal["vit", "resnet"] = "resnet"
    """Network of the images: vit, a transformer, or resnet, a ModifiedResNet, which learns from fewer images."""
    image_size: Positive = 32
    """Pixels, height and width, of the network's input; images of another size are resized to it."""
    patch: Positive = 8
    """vit: pixels, height and width, of an image token."""
    image_width: Positive = 16
    """vit: a multiple of 64, since a head has 64 channels; resnet: channels of the first level, a 32nd of the
    fourth's."""
    image_layers: Positive = 1
    """vit: number of layers; resnet: blocks in each of its four levels."""
    text_width: Positive = 64
    """Width of the text transformer, a multiple of 64."""
    text_layers: Positive = 2
    """Layers of the text transformer."""
    context_length: Annotated[int, Field(ge=8, le=77)] = 16
    """Tokens of a caption, start and end token included."""
    embed_dim: Positive = 64
    """Length of an embedding."""

    def _misfits(self) -> Iterator[str]:
        vit = self.image_network == "vit"
        for name in ("image_width", "text_width") if vit else ("text_width",):
            if (width := getattr(self, name)) % HEAD:
                yield f"{name} ({width}) must be a multiple of {HEAD}, the width of a head in `clip.load`"
        if not vit and self.image_size % RESNET_STEP:
            yield f"image_size ({self.image_size}) must be a multiple of {RESNET_STEP}, by which a resnet reduces it"
        if not vit and self.image_width % 2:
            yield f"image_width ({self.image_width}) must be even: a resnet begins with half of it"
        if vit and self.image_size % self.patch:
            yield f"patch ({self.patch}) must divide image_size ({self.image_size})"


class Trained(Section):
    """A CLIP trained here: its size, and the treatment of equal captions in the loss."""

    model: ClipModel = ClipModel.model_construct()
    """Sizes of the two networks."""
    equal_captions: Literal["positives", "negatives"] = "positives"
    """Equal captions in a batch: positives of each other's images, or negatives, as published."""


class Pretrained(Section):
    """A published CLIP: one of OpenAI's by name, one of open_clip's, or a file."""

    name: Name | None = "ViT-B/32"
    """One of OpenAI's models, downloaded once; null: `open_clip` or `file`."""
    open_clip: Annotated[str, Field(pattern=r"^(hf-hub:[^/]+/[^/]+|[^/:]+/[^/:]+)$")] | None = None
    """One of open_clip's, ARCHITECTURE/TAG, say ViT-B-32/laion2b_s34b_b79k, or hf-hub:OWNER/NAME; null: none."""
    file: str = NO_FILE
    """An archive of OpenAI's, a state dict, or a folder with open_clip_config.json; data/none: by name."""
    enlarge: bool = True
    """Images smaller than its input are enlarged; false: they are an error, as in DALLE2-pytorch."""

    def _misfits(self) -> Iterator[str]:
        if sum((self.name is not None, self.open_clip is not None, self.file != NO_FILE)) != 1:
            yield f"give one of name, open_clip and file; the others are null, null and {NO_FILE}"

    @property
    def of_open_clip(self) -> str | None:
        """The argument of open_clip, a name or a folder; None: it is one of OpenAI's networks."""
        return self.open_clip or (self.file if Path(self.file, OPEN_CLIP_CONFIG).is_file() else None)

    def too_large(self, size: int, images: int) -> str | None:
        """Return the reason why a network with an input of `size` pixels does not fit smaller images, or None."""
        if self.enlarge or size <= images:
            return None
        return (
            f"`train_clip.pretrained` names a CLIP that takes {size} pixels a side, but the images have {images}, and "
            "`train_clip.pretrained.enlarge` is false: set it to true, or `ingest.image_size` to "
            f"{size} at least"
        )


class Evaluate(Section):
    """The images and prompts of the scores."""

    split: Literal["val", "test"] = "test"
    """Split that is evaluated when the training ends."""
    images: Annotated[int, Field(ge=2)] = 5000
    """Largest number of images, drawn from the split."""
    batch: Positive = 64
    """Images in a forward pass."""
    prompts: list[Annotated[str, Field(pattern=r"\{label\}")]] = []
    """Texts with {label} that represent a class; []: its captions."""
    captions: Positive = 16
    """Captions that represent a class without prompts, its most frequent ones in the train split."""


class Nothing(Section):
    """No CLIP, and so no decoder and no prior, for example for images without captions."""


class ClipTraining(Training):
    """The training of CLIP."""

    seed: Seed = 2
    images: Positive = 79_968
    batch: Positive = 96
    learning_rate: Rate = 0.001
    schedule: Schedule = "cosine"
    warmup: Warmup = 6624
    final_rate: Fraction = 0.01
    optimizer: Optimizer = "muon"
    betas: Betas = (0.9, 0.98)
    weight_decay: Weight = 0.01
    ema_decay: Fraction = 0.98
    log_every: Positive = 1632
    validate_every: Positive = 7968


class TrainClip(Section):
    """Which CLIP, and how it is trained. Only the chosen source's section is a dependency."""

    source: Literal["trained", "pretrained", "none"] = "trained"
    """trained: here, on the captions; pretrained; none: no CLIP, no decoder, no prior, as for images without
    captions."""
    long_captions: Literal["stop", "truncate"] = "truncate"
    """What to do with a caption of more tokens than `context_length`."""
    trained: Trained | None = None
    """A small CLIP, trained here, which `clip.load` opens."""
    pretrained: Pretrained | None = None
    """A published CLIP, which is not trained."""
    none: Nothing | None = None
    """No CLIP: it has no keys."""
    training: ClipTraining = ClipTraining.model_construct()
    """The keys of `training` that have another value here. Each image is compared with all captions of a batch."""
    evaluate: Evaluate = Evaluate.model_construct()
    """Zero-shot accuracy, and recall of captions by images and of images by captions."""

    def _misfits(self) -> Iterator[str]:
        if getattr(self, self.source) is None:
            yield f"source is {self.source}, but the section `{self.source}` is missing: add it"
        if self.source != "trained" and self.training.processes > 1:
            yield f"source is {self.source}, which is not trained: set `train_clip.training.processes` to 1"
        resnet = self.trained is not None and self.trained.model.image_network == "resnet"
        if self.source == "trained" and resnet and self.training.processes > 1:
            yield "trained.model.image_network is resnet: set `train_clip.training.processes` to 1, or use vit"


class Params(Section):
    """What dvc.yaml gives to `train_clip`."""

    run: Run
    train_clip: TrainClip

    @property
    def idle(self) -> str | None:
        """The reason why nothing is trained, or None."""
        reasons = {"pretrained": "published weights are taken as they are", "none": NO_CLIP}
        return reasons.get(self.train_clip.source)


def unfit(settings: TrainClip, image_size: int) -> str | None:
    """Return the reason why the section does not fit images of `image_size` pixels a side, as far as known, or None.

    Called by `darkroom check`. Images are resized to the input of the CLIP, so a larger input adds no detail.
    """
    if settings.source == "pretrained":
        assert settings.pretrained is not None  # `_chosen`
        given = settings.pretrained
        if given.of_open_clip is not None and find_spec("open_clip") is None:
            return "`train_clip.pretrained` needs open_clip: install it with `pip install -e '.[open_clip]'`"
        if given.file != NO_FILE and given.of_open_clip is None and not Path(given.file).is_file():
            return (
                f"`train_clip.pretrained.file` is {given.file}, which is not a file: give the path of a .pt file, "
                f"OpenAI's or one of ours, or of a folder with {OPEN_CLIP_CONFIG}"
            )
        return None if given.name is None else given.too_large(INPUT.get(given.name, 224), image_size)
    if settings.source == "none":
        return None
    assert settings.trained is not None
    if (size := settings.trained.model.image_size) > image_size:
        return (
            f"`train_clip.trained.model.image_size` is {size}, but the images have {image_size} pixels a side, so a "
            f"larger input adds no detail: set it to at most {image_size}"
        )
    return None


class Imported(Section):
    """The layout of the folder that a part's `embeddings` names, as DALLE2-pytorch reads it."""

    images: Annotated[str, Field(min_length=1)] = "img_emb"
    """Subfolder with the embeddings of the images."""
    texts: Annotated[str, Field(min_length=1)] | None = None
    """Subfolder with the embeddings of the captions; null: they are computed."""
    encodings: Annotated[str, Field(min_length=1)] | None = None
    """Subfolder with the encodings of the captions' tokens; null: they are computed."""
    index_width: Positive = 4
    """Number of digits at the end of a key that are the row."""
    missing: Literal["stop", "compute"] = "stop"
    """What to do with an image that has no embedding."""

    @property
    def subfolders(self) -> dict[str, str]:
        """The location of each kind of imported embeddings."""
        given = {"image": self.images, "text": self.texts, "encoding": self.encodings}
        return {name: folder for name, folder in given.items() if folder is not None}


class EmbedClip(Section):
    """How embeddings are computed, or imported, and stored."""

    threads: Positive = 1
    """CPU threads."""
    batch: Positive = 64
    """Images, or captions, in a forward pass."""
    normalise: bool = True
    """Give the embeddings of images and captions length 1."""
    encodings: bool = False
    """Also store CLIP's encoding of each token of a caption: 77 times the space with OpenAI's, for `text_tokens`."""
    store: list[Split] = ["train", "val", "test"]
    """Splits whose embeddings are stored; those of other splits are computed on demand."""
    imported: Imported = Imported.model_construct()
    """The layout of imported embeddings in the folder that a part's `embeddings` names."""

    def _misfits(self) -> Iterator[str]:
        if len(set(self.store)) != len(self.store):
            yield "store names a split twice"


class EmbedParams(Section):
    """What dvc.yaml gives to `embed_clip`."""

    run: Run
    parts: dict[PartName, dict[str, str]]  # the folders of imported embeddings
    embed_clip: EmbedClip


def folder_of(params: EmbedParams, part: str) -> str | None:
    """Return the folder with a part's imported embeddings; None: they are computed."""
    folder = params.parts[part]["embeddings"]
    return None if folder == NO_FILE else folder


def fits(params: Any) -> None:
    """Check the section of CLIP.

    Args:
        params: the whole of params.yaml, validated.

    Raises:
        DarkroomError: it does not fit; names its key.
    """
    if reason := unfit(params.train_clip, params.ingest.image_size):
        refuse(f"{reason}.")
