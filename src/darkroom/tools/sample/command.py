"""`darkroom sample`: checks a request before torch is imported, samples the images, and writes the grid."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Option

from darkroom.data.texts import read_texts
from darkroom.environment import choose_device, set_threads
from darkroom.errors import DarkroomError
from darkroom.models.generators.kind_settings import READ
from darkroom.models.prior.settings import SampleParams
from darkroom.params.section import validate
from darkroom.params.stage import given
from darkroom.tools.places import require_picture
from darkroom.tools.sample.classes import Overrides, condition, generated, reads_texts

if TYPE_CHECKING:
    from darkroom.tools.bands import Named

PLACE = Path("logs/sample")
_NAME = 60  # maximum characters of a text in the name of its file
_MODELS = {name: f"train_{name}" for name in ("clip", "decoder", "prior", "tokenizer", "generator")}


_OVERRIDES = "Of models/generator, in place of `sample_generator` in params.yaml"


def command(
    text: Annotated[list[str] | None, Option(help="a text to sample images of; may be repeated")] = None,
    text_file: Annotated[
        list[str] | None, Option(metavar="FILE", help="a file of texts, a line each; may be repeated")
    ] = None,
    by: Annotated[
        Literal["generator", "decoder"] | None,
        Option(
            help="the model for texts: models/generator, or prior and decoder; default: the former if it reads texts"
        ),
    ] = None,
    embedding_of: Annotated[
        list[str] | None, Option(metavar="FILE", help="an image to sample variations of; may be repeated")
    ] = None,
    mask: Annotated[
        str | None,
        Option(metavar="FILE", help="with --embedding-of: an image, white where the others are filled in (RePaint)"),
    ] = None,
    labels: Annotated[
        list[str] | None, Option(metavar="CLASS,…", help="classes, by name or number; may be repeated")
    ] = None,
    images: Annotated[int, Option(min=1, help="images of each")] = 4,
    seed: Annotated[int | None, Option(min=0, help="of all noise; default: the seed in params.yaml")] = None,
    steps: Annotated[str | None, Option(help="steps of the solver", rich_help_panel=_OVERRIDES)] = None,
    guidance: Annotated[float | None, Option(help="scale of guidance; 1: none", rich_help_panel=_OVERRIDES)] = None,
    solver: Annotated[
        str | None, Option(help="the solver; it must fit the training", rich_help_panel=_OVERRIDES)
    ] = None,
    weights: Annotated[
        str | None,
        Option(
            help="ema, raw, a .safetensors file, or a folder with a model or a checkpoint", rich_help_panel=_OVERRIDES
        ),
    ] = None,
    sigma_rel: Annotated[
        float | None, Option(help="width of the average, rebuilt from snapshots", rich_help_panel=_OVERRIDES)
    ] = None,
    out: Annotated[
        str | None, Option(metavar="FILE.png", help="where the grid is written; default: logs/sample/")
    ] = None,
) -> str:
    """Write the grid, and return a line for the terminal. Raises DarkroomError: see `sample` and `sample_generator`."""
    overrides = Overrides(seed, steps, guidance, solver, weights, sigma_rel)
    texts, files = texts_of(text or [], text_file or []), embedding_of or []
    if labels:
        if texts or files or mask:
            raise DarkroomError(
                "--labels are of classes, --text of texts, --embedding-of and --mask of the decoder: one call each."
            )
        return sample_generator("class", labels, images, out, overrides)
    texts_alone = texts and not (files or mask)
    if texts_alone and (by == "generator" or (by is None and reads_texts())):
        return sample_generator("text", texts, images, out, overrides)
    if by == "generator":
        raise DarkroomError("--by generator draws texts: give --text, and not --embedding-of, which the decoder draws.")
    given = [
        f"--{name.replace('_', '-')}"
        for name, value in overrides._asdict().items()
        if value is not None and name != "seed"
    ]
    if given:
        raise DarkroomError(
            f"{', '.join(given)}: read with --labels or --by generator only; the decoder has `sample_decoder`."
        )
    return sample(texts, files, images, seed, out, mask)


def sample(
    texts: Sequence[str], files: Sequence[str], images: int, seed: int | None, out: str | None, mask: str | None = None
) -> str:
    """Write a grid with a row for each text and each file; return a line for the terminal.

    Of the texts by CLIP, prior and decoder, of the files variations by CLIP and decoder; with a mask they are filled in
    where it is white. `seed` None: `sample_text.seed`; `out` None: a name made of texts and seed, in `logs/sample`.

    Raises:
        DarkroomError: there is no text and no file, a model is missing or does not fit, or a file cannot be read or
            written.
    """
    if not texts and not files:
        raise DarkroomError(
            "say what to make images of: --text 'a red circle', --labels 3,5, or --embedding-of FILE.png."
        )
    if mask is not None and not files:
        raise DarkroomError("--mask says what of an image is filled in: name that with --embedding-of FILE.png.")
    values = given("sample_text")
    values["sample_text"] |= {} if seed is None else {"seed": seed}
    params = validate(SampleParams, values)
    try:
        require_models(["clip", "decoder", *(["prior"] if texts else [])])
    except DarkroomError as error:
        if not texts or condition() != "class":
            raise
        raise DarkroomError(f"{error} models/generator draws classes: --labels.") from None
    target = grid_path(texts, files, params.sample_text.seed, out)
    set_threads(params.sample_text.threads)
    choose_device(params.run.device)
    from darkroom.tools.sample.pictures import pictures

    drawn = _written(target, pictures(params, texts, files, images, mask))
    return f"{drawn}{images} image{'s' * (images > 1)} of each of {len(texts) + len(files)}: {target}"


def sample_generator(
    kind: Literal["class", "text"], words: Sequence[str], images: int, out: str | None, overrides: Overrides
) -> str:
    """Write a grid of models/generator with a row for each class or text; return a line for the terminal.

    `out` None: a name made of words and seed, in `logs/sample`.

    Raises:
        DarkroomError: there is no such class or no model, a value does not fit, or a file cannot be read or written.
    """
    generator = [] if overrides.weights else ["generator"]  # of a checkpoint there may be none
    require_models(["tokenizer", *generator, *(["clip"] if condition() in READ else [])])
    target, rows = generated(kind, words, images, overrides, lambda names, seed: grid_path(names, [], seed, out))
    return f"{_written(target, rows)}{images} image{'s' * (images > 1)} of each {kind}: {target}"


def _written(target: Path, rows: "Sequence[Named]") -> str:
    """Write the grid, and return its rows for the terminal, where that shows pictures."""
    from darkroom.data.grid import captioned_grid, save_png
    from darkroom.tools.bands import drawn_here

    save_png(target, captioned_grid([images for _, images in rows], [name for name, _ in rows], columns=1))
    return drawn_here(rows)


def texts_of(texts: Sequence[str], files: Sequence[str]) -> list[str]:
    """Return texts, and those of files, a line each; empty lines are left out.

    Raises:
        DarkroomError: a file cannot be read, or holds no text.
    """
    return [*texts, *(text for file in files for text in read_texts(Path(file), f"--text-file {file}"))]


def require_models(names: Sequence[str]) -> None:
    """Check that models are there. Raises DarkroomError naming the stage of one that is not."""
    for name in names:
        folder = Path("models") / name
        if not any(folder.rglob("manifest.json")):
            raise DarkroomError(f"{folder} is not there: run `dvc repro {_MODELS[name]}`, or `dvc checkout {folder}`.")


def grid_path(texts: Sequence[str], files: Sequence[str], end: object, out: str | None, place: Path = PLACE) -> Path:
    """Return the path of a grid: as given, or in `place` by what it shows, and `end`.

    Raises:
        DarkroomError: see `require_picture`.
    """
    if out is None:
        words = "-".join([*texts, *(Path(file).stem for file in files)])
        return place / f"{re.sub(r'[^a-z0-9]+', '-', words.lower())[:_NAME].strip('-') or 'images'}-{end}.png"
    target = Path(out)
    require_picture(f"--out {out}", target)
    return target
