"""`darkroom sample` of models/generator: images of classes, or of texts where it reads these, a row for each."""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from darkroom.artifacts.manifest import NAME, open_artifact, read_manifest
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
from darkroom.params.section import PARAMS
from darkroom.params.stage import read_yaml
from darkroom.tools.editing import leaves
from darkroom.training.state import UNTRAINED

if TYPE_CHECKING:
    from darkroom.tools.bands import Named

MODEL, DISTILLED = Path("models/generator"), Path("models/distilled")
_BATCH = 4  # images in a forward pass, of one class


class Overrides(NamedTuple):
    """What the command line says in place of params.yaml; None: as it stands there."""

    seed: int | None = None
    steps: str | None = None
    guidance: float | None = None
    solver: str | None = None
    weights: str | None = None
    sigma_rel: float | None = None

    @property
    def whole(self) -> bool:
        """Whether one says how the generator draws, and what was distilled of it draws otherwise."""
        return any(each is not None for each in (self.steps, self.guidance, self.solver, self.weights, self.sigma_rel))


class Settings(NamedTuple):
    """The section `sample_generator` with overrides, `run`, and what draws in place of the generator; None: it does."""

    sections: SampleGenerator
    run: Run
    distilled: Path | None


def settings_of(overrides: Overrides) -> Settings:
    """Return what params.yaml says with overrides, checked against the training.

    An override that says how the generator draws, or of which weights, is of the generator itself.

    Raises:
        DarkroomError: a value is not valid, or does not fit what was trained; or no generator is.
    """
    if overrides.weights is not None and overrides.sigma_rel is not None:
        raise DarkroomError("--sigma-rel and --weights both say which weights: give one of them.")
    values = copy.deepcopy(read_yaml(PARAMS))
    kind = str((values.get("train_generator") or {}).get("kind"))
    if kind in GENERATORS and not GENERATORS.has("sampler", kind):
        raise DarkroomError(
            f"{PARAMS}: {NO_GENERATOR}: set it to dit or pretrained, and run `dvc repro train_generator`."
        )
    steps = overrides.steps
    of_kind = {
        "steps": int(steps) if steps is not None and steps.isdigit() else steps,
        "guidance": overrides.guidance,
        "solver": overrides.solver,
    }
    of_all = {"seed": overrides.seed, "sigma_rel": overrides.sigma_rel}
    section = values.setdefault("sample_generator", {})
    if overrides.sigma_rel is not None:  # the average, and not a kept checkpoint
        section["common"] = {**(section.get("common") or {}), "checkpoint": None}
    for name, changes in ((kind, of_kind), ("common", of_all)):
        section[name] = (section.get(name) or {}) | {key: value for key, value in changes.items() if value is not None}
    if isinstance(of_kind["steps"], str):  # which says itself which timesteps
        section[kind].pop("spacing", None)
    if overrides.weights is not None:
        named = overrides.weights if overrides.weights in ("ema", "raw") else "ema"
        section["common"] |= {"weights": named, "sigma_rel": None, "average_images": None}
    if overrides.whole:
        values["train_distilled"] = (values.get("train_distilled") or {}) | {"kind": "none"}
    whole = validated(values)
    # Which averages there are the trained model says, not params.yaml, which may have changed since.
    common = whole.sample_generator.common.model_copy(update={"sigma_rel": None, "average_images": None})
    sampled = whole.sample_generator.model_copy(update={"common": common})
    fits(whole.model_copy(update={"sample_generator": sampled}))
    distilled = None if whole.train_distilled.kind == "none" else DISTILLED
    return Settings(whole.sample_generator, whole.run, distilled)


def generated(
    kind: Literal["class", "text"],
    words: Sequence[str],
    images: int,
    overrides: Overrides,
    target: Callable[[Sequence[str], int], Path],
) -> "tuple[Path, list[Named]]":
    """Return where the grid goes, and its rows: each class or text with its images, uint8 (N, C, H, W).

    Image k is a function of the class or text, the seed and k, bit for bit: each has batches of its own, all of one
    size. `words` are texts, or names or numbers of classes, several in one word separated by commas; `target` returns
    the path of the grid from the names of the rows and the seed, and raises before anything is sampled.

    Raises:
        DarkroomError: there is no such class, a text is too long, the generator reads none of these or those of another
            CLIP, or a value does not fit.
    """
    (sections, run, distilled), model = settings_of(overrides), model_of(overrides.weights)
    manifest, settings = generator_manifest(model), sections.common
    read, names, chosen = manifest.get("condition", "class"), [*words], list[int]()
    if kind == "text" and read not in TEXTS:
        raise DarkroomError(
            f"{model} was trained with the condition {read}, and reads no texts: set "
            "`train_generator.dit.model.condition` to caption, text or tokens and train it again, or take --by decoder."
        )
    if kind == "class":
        if read != "class":
            other = "give --text" if read in TEXTS else "make its images with `dvc repro sample_generator`"
            raise DarkroomError(f"{model} was trained with the condition {read}, and knows no labels: {other}.")
        classes = [str(name) for name in manifest["classes"]]
        chosen = numbers_of(words, classes)
        names = [classes[number] for number in chosen]
    set_threads(settings.threads)
    choose_device(run.device)
    path = target(names, settings.seed)

    import numpy as np

    from darkroom.device import set_up_device
    from darkroom.models.generators.captions import asked_texts
    from darkroom.models.generators.conditions import asked_classes
    from darkroom.models.generators.load import load_weights, open_generator
    from darkroom.models.generators.sampler import generate
    from darkroom.tools.sample.texts import stored_texts

    device = set_up_device(settings.threads, run.device)
    sampler, sampling = open_generator(model, read_manifest(model, GENERATOR), sections, settings, device, distilled)
    if overrides.weights not in (None, "ema", "raw"):
        load_weights(sampler.model, Path(str(overrides.weights)))
    request = settings.model_copy(update={"images": images, "batch": _BATCH})
    if kind == "class":
        asked = [asked_classes(partial(np.full_like, fill_value=each)) for each in chosen]
    else:
        stored = stored_texts(words, manifest, model)
        asked = [
            asked_texts([text], {name: value[at : at + 1] for name, value in stored.items()})
            for at, text in enumerate(words)
        ]
    rows = [np.concatenate(list(generate(sampler, request, sampling, asked=each))) for each in asked]
    return path, list(zip(names, rows, strict=True))


def model_of(weights: str | None) -> Path:
    """Return the folder of the network that weights belong to: models/generator, or of a checkpoint its training's."""
    folders = [each / UNTRAINED for each in Path(weights).absolute().parents] if weights else []
    return next((each for each in folders if (each / NAME).is_file()), MODEL)


def reads_texts() -> bool:
    """Return whether models/generator was trained on texts, or, where it is not there, would be by params.yaml."""
    values = dict(leaves(read_yaml(PARAMS)))
    planned = values.get(f"train_generator.{values.get('train_generator.kind')}.model.condition")
    return (condition() or planned) in TEXTS


def condition() -> str | None:
    """Return the condition that models/generator was trained on; None: it is not there."""
    there = (MODEL / NAME).is_file()
    return open_artifact(MODEL, GENERATOR).get("condition", "class") if there else None


def numbers_of(words: Sequence[str], classes: Sequence[str], option: str = "--labels") -> list[int]:
    """Return the numbers of classes, given by name or, where none has that name, by number.

    Raises:
        DarkroomError: there is no such class; names the nearest.
    """
    from darkroom.models.generators.conditions import class_number

    names = [name.strip() for word in words for name in ([word] if word in classes else word.split(","))]
    if not all(names):
        raise DarkroomError(f"{option} is a list of classes, by name or number: {option} 3,5.")
    return [class_number(name, classes, f"{option} names") for name in names]
