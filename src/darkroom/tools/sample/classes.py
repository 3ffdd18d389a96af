"""Sample models/generator for `darkroom sample`: one row of images per class, or per text if it reads texts."""

import copy
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from darkroom.artifacts.manifest import NAME, manifest_hash, open_artifact, read_manifest, sha256_file
from darkroom.artifacts.models import GENERATOR, generator_manifest
from darkroom.check.check import validated
from darkroom.environment import choose_device, set_threads
from darkroom.errors import DarkroomError
from darkroom.models.generators.fits import fits
from darkroom.models.generators.kind_settings import TEXTS
from darkroom.models.generators.sample_settings import SampleGenerator
from darkroom.models.generators.settings import NO_GENERATOR
from darkroom.models.kinds import GENERATORS
from darkroom.params.run import Run
from darkroom.params.section import PARAMS, validate
from darkroom.params.stage import leaves, read_yaml
from darkroom.tools.sample.hole import Hole
from darkroom.training.state import UNTRAINED

if TYPE_CHECKING:
    from darkroom.tools.bands import Named
    from darkroom.tools.sample.single import Origin

MODEL, DISTILLED = Path("models/generator"), Path("models/distilled")
_BATCH = 4  # images in a forward pass, of one class


class Overrides(NamedTuple):
    """Options of the command line that override params.yaml; None: no override."""

    seed: int | None = None
    steps: str | None = None
    guidance: float | None = None
    solver: str | None = None
    weights: str | None = None
    temperature: float | None = None
    top_k: int | None = None

    @property
    def of_kind(self) -> dict[str, Any]:
        """The overrides of the section of the generator's kind."""
        steps = int(self.steps) if self.steps is not None and self.steps.isdigit() else self.steps
        values = {"steps": steps, "guidance": self.guidance, "solver": self.solver}
        values |= {"temperature": self.temperature, "top_k": self.top_k}
        return {key: value for key, value in values.items() if value is not None}

    @property
    def whole(self) -> bool:
        """Whether an override sets the sampling of the generator, which a distilled model does not use."""
        return bool(self.of_kind) or self.weights is not None


class Settings(NamedTuple):
    """The section `sample_generator` with overrides, `run`, and the model that replaces the generator, if any."""

    sections: SampleGenerator
    run: Run
    distilled: Path | None


def settings_of(overrides: Overrides) -> Settings:
    """Return the settings of params.yaml, or defaults where there is no such file, with overrides, after checks.

    An override of the sampler or the weights applies to the generator itself.

    Raises:
        DarkroomError: a value is not valid, or does not fit the trained model; or no generator is trained.
    """
    alone = not PARAMS.is_file()
    if alone:
        manifest = read_manifest(model_of(overrides.weights), GENERATOR)
        values: dict[str, Any] = {"train_generator": {"kind": manifest["generator_kind"]}}
    else:
        values = copy.deepcopy(read_yaml(PARAMS))
    kind = str((values.get("train_generator") or {}).get("kind"))
    if kind in GENERATORS and not GENERATORS.has("sampler", kind):
        raise DarkroomError(f"{PARAMS}: {NO_GENERATOR}: choose one, and run `dvc repro train_generator`.")
    of_kind = overrides.of_kind
    if kind in GENERATORS:
        known = GENERATORS.load("sampling", kind).model_fields
        if unknown := [f"--{key.replace('_', '-')}" for key in of_kind if key not in known]:
            raise DarkroomError(f"{', '.join(unknown)}: the generator {kind} has no such setting.")
    of_all = {} if overrides.seed is None else {"seed": overrides.seed}
    section = values.setdefault("sample_generator", {})
    for name, changes in ((kind, of_kind), ("common", of_all)):
        section[name] = (section.get(name) or {}) | changes
    if isinstance(of_kind.get("steps"), str):  # a list of timesteps, which needs no spacing
        section[kind].pop("spacing", None)
    if overrides.weights is not None:
        section["common"]["weights"] = overrides.weights if overrides.weights in ("ema", "raw") else "ema"
    if alone:
        return Settings(validate(SampleGenerator, section, "sample_generator"), Run(), None)
    if overrides.whole:
        values["train_distilled"] = (values.get("train_distilled") or {}) | {"kind": "none"}
    whole = validated(values)
    fits(whole)
    distilled = None if whole.train_distilled.kind == "none" else DISTILLED
    return Settings(whole.sample_generator, whole.run, distilled)


Kind = Literal["class", "text", "none"]


class Request(NamedTuple):
    """A checked request to sample classes, texts, or images without a condition (`none`)."""

    kind: Kind
    names: list[str]
    classes: list[int]
    model: Path
    weights: str | None
    settings: Settings
    hole: Hole | None = None

    @property
    def seed(self) -> int:
        """The seed of all random numbers."""
        return self.settings.sections.common.seed


def requested(kind: Kind, words: Sequence[str], overrides: Overrides, hole: Hole | None = None) -> Request:
    """Check classes or texts against models/generator, before torch is imported.

    `words` are texts; or names or numbers of classes, several in one word separated by commas; or one title.

    Raises:
        DarkroomError: a class does not exist, the generator does not read this condition, or a value does not fit.
    """
    settings, model = settings_of(overrides), model_of(overrides.weights)
    manifest = generator_manifest(model)
    if hole is not None and not GENERATORS.load("settings", manifest["generator_kind"]).fills:
        raise DarkroomError(
            f"--inpaint needs a generator that predicts masked codes, but {model} is of the kind "
            f"`{manifest['generator_kind']}`: set `train_generator.kind` to masked, or use --embedding-of and --mask."
        )
    read, names, chosen = manifest.get("condition", "class"), [*words], list[int]()
    if kind == "text" and read not in TEXTS:
        raise DarkroomError(
            f"{model} was trained with the condition {read}, so it does not read texts: set "
            "`model.condition` of the generator to caption, text or tokens and retrain, or use --by decoder."
        )
    if kind == "class":
        if read != "class":
            others = {**dict.fromkeys(TEXTS, "use --text"), "none": "leave out --labels"}
            other = others.get(read, "make images with `dvc repro sample_generator`")
            raise DarkroomError(f"{model} was trained with the condition {read}, so it has no labels: {other}.")
        classes = [str(name) for name in manifest["classes"]]
        chosen = numbers_of(words, classes)
        names = [classes[number] for number in chosen]
    set_threads(settings.sections.common.threads)
    choose_device(settings.run.device)
    return Request(kind, names, chosen, model, overrides.weights, settings, hole)


def generated(request: Request, images: int) -> "tuple[list[Named], Origin]":
    """Return rows, each class or text with its images, uint8 (N, C, H, W), and their origin.

    Image k is a function of the class or text, the seed and k, bit for bit: each has batches of its own, all of one
    size.

    Raises:
        DarkroomError: a text is too long, or the generator was trained with another CLIP.
    """
    import numpy as np

    from darkroom.device import set_up_device
    from darkroom.models.generators.captions import asked_texts
    from darkroom.models.generators.conditions import NOTHING, asked_classes
    from darkroom.models.generators.load import TOKENIZER, load_weights, open_generator
    from darkroom.models.generators.sampler import generate
    from darkroom.tools.sample.inpainting import filling
    from darkroom.tools.sample.single import Origin
    from darkroom.tools.sample.texts import stored_texts

    (sections, run, distilled), model = request.settings, request.model
    settings, manifest = sections.common, read_manifest(model, GENERATOR)
    device = set_up_device(settings.threads, run.device)
    sampler, sampling = open_generator(model, manifest, sections, settings, device, distilled)
    models = {str(folder): manifest_hash(folder) for folder in (model, distilled, TOKENIZER) if folder is not None}
    if request.weights not in (None, "ema", "raw"):
        file = load_weights(sampler.model, Path(str(request.weights)))
        models[file.name] = sha256_file(file)
    sizes = settings.model_copy(update={"images": images, "batch": _BATCH})
    if request.kind == "none":
        conditions = [NOTHING]
    elif request.kind == "class":
        conditions = [asked_classes(partial(np.full_like, fill_value=each)) for each in request.classes]
    else:
        stored = stored_texts(request.names, manifest, model)
        conditions = [
            asked_texts([text], {name: value[at : at + 1] for name, value in stored.items()})
            for at, text in enumerate(request.names)
        ]
    filled = None if request.hole is None else filling(request.hole, sampler, manifest)
    rows = [np.concatenate(list(generate(sampler, sizes, sampling, conditions=each))) for each in conditions]
    rows = rows if filled is None else [filled(row) for row in rows]
    used = settings.model_dump(include={"weights", "checkpoint", "precision"}) | sampling.model_dump()
    if request.hole is not None:
        used["inpaint"] = {**request.hole._asdict(), "file": request.hole.file.name}
    return list(zip(request.names, rows, strict=True)), Origin(settings.seed, used, models)


def model_of(weights: str | None) -> Path:
    """Return the folder of the network of weights: models/generator, or that of the training of a checkpoint."""
    folders = [each / UNTRAINED for each in Path(weights).absolute().parents] if weights else []
    return next((each for each in folders if (each / NAME).is_file()), MODEL)


def reads_texts() -> bool:
    """Return whether models/generator was trained on texts, or if it is missing, whether params.yaml says so."""
    values = dict(leaves(read_yaml(PARAMS))) if PARAMS.is_file() else {}
    planned = values.get(f"train_generator.{values.get('train_generator.kind')}.model.condition")
    return (condition() or planned) in TEXTS


def condition() -> str | None:
    """Return the condition that models/generator was trained on; None if the model is missing."""
    exists = (MODEL / NAME).is_file()
    return open_artifact(MODEL, GENERATOR).get("condition", "class") if exists else None


def numbers_of(words: Sequence[str], classes: Sequence[str], option: str = "--labels") -> list[int]:
    """Return the numbers of classes, given by name or, if no class has that name, by number.

    Raises:
        DarkroomError: a class does not exist; the message suggests the nearest one.
    """
    from darkroom.models.generators.conditions import class_number

    names = [name.strip() for word in words for name in ([word] if word in classes else word.split(","))]
    if not all(names):
        raise DarkroomError(f"{option} expects a list of class names or numbers, for example {option} 3,5.")
    return [class_number(name, classes, f"{option} names") for name in names]
