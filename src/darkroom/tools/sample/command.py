"""`darkroom sample`: check a request before importing torch, sample the images, and write the grid."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Option

from darkroom.environment import choose_device, set_threads
from darkroom.errors import DarkroomError
from darkroom.models.generators.kind_settings import READ
from darkroom.models.prior.settings import SampleParams
from darkroom.params.section import PARAMS, validate
from darkroom.params.stage import lookup, read_yaml, stage_params
from darkroom.tools import command
from darkroom.tools.places import require_picture
from darkroom.tools.sample.classes import Kind, Overrides, condition, generated, reads_texts, requested
from darkroom.tools.sample.hole import Hole, hole_of

if TYPE_CHECKING:
    from darkroom.tools.bands import Named

PLACE = Path("logs/sample")
_FILES = {".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff"}  # endings of a picture, not of a folder
_NAME = 60  # maximum characters of a text in the name of its file
_MODELS = {name: f"train_{name}" for name in ("clip", "decoder", "prior", "tokenizer", "generator")}


_OVERRIDES = "For models/generator, overriding `sample_generator` in params.yaml"


@command("Sample", "sample", "Sample images from texts or classes, or variations of images.")
def sample_command(
    text: Annotated[list[str] | None, Option(help="a text to generate images from; may be repeated")] = None,
    text_file: Annotated[Path | None, Option(help="a file of texts to generate images from, one per line")] = None,
    by: Annotated[
        Literal["generator", "decoder"] | None,
        Option(
            help="the model for texts: models/generator, or prior and decoder; default: generator if it reads texts"
        ),
    ] = None,
    embedding_of: Annotated[
        list[str] | None, Option(metavar="FILE", help="an image to generate variations of; may be repeated")
    ] = None,
    mask: Annotated[
        str | None,
        Option(metavar="FILE", help="with --embedding-of: an image, white where images are inpainted (RePaint)"),
    ] = None,
    labels: Annotated[
        list[str] | None, Option(metavar="CLASS,…", help="classes, by name or number; may be repeated")
    ] = None,
    images: Annotated[int, Option(min=1, help="images per text, class or file")] = 4,
    seed: Annotated[int | None, Option(min=0, help="seed of the noise; default: the seed in params.yaml")] = None,
    steps: Annotated[str | None, Option(help="steps of the solver", rich_help_panel=_OVERRIDES)] = None,
    guidance: Annotated[float | None, Option(help="guidance scale; 1: none", rich_help_panel=_OVERRIDES)] = None,
    solver: Annotated[
        str | None, Option(help="the solver; it must fit the training", rich_help_panel=_OVERRIDES)
    ] = None,
    temperature: Annotated[
        float | None, Option(help="divisor of the logits of codes", rich_help_panel=_OVERRIDES)
    ] = None,
    top_k: Annotated[
        int | None, Option(min=1, help="sample among the k most likely codes", rich_help_panel=_OVERRIDES)
    ] = None,
    inpaint: Annotated[
        Path | None, Option(metavar="FILE", help="with a generator of masked codes: an image to fill")
    ] = None,
    box: Annotated[
        str | None, Option(metavar="L,T,R,B", help="with --inpaint: the rectangle to fill, in pixels")
    ] = None,
    outside: Annotated[bool, Option("--outside", help="with --inpaint: fill all outside of the rectangle")] = False,
    weights: Annotated[
        str | None,
        Option(help="ema, raw, a .safetensors file, or a model or checkpoint folder", rich_help_panel=_OVERRIDES),
    ] = None,
    out: Annotated[
        str | None,
        Option(
            metavar="FILE.png|DIR",
            help="path of the grid; or, for models/generator, a folder for the grid and single images, each compared "
            "with the training images; default: a grid in logs/sample/",
        ),
    ] = None,
) -> str:
    """Write the grid, and return a line for the terminal. Raises DarkroomError: see `sample` and `sample_generator`."""
    overrides = Overrides(seed, steps, guidance, solver, weights, temperature, top_k)
    hole = hole_of(inpaint, box, outside)
    of_file = read_texts(text_file, f"--text-file {text_file}") if text_file else []
    texts, files = [*(text or []), *of_file], embedding_of or []
    if labels:
        if texts or files or mask:
            raise DarkroomError(
                "--labels samples classes, --text texts, --embedding-of and --mask the decoder: use one command each."
            )
        return sample_generator("class", labels, images, out, overrides, hole)
    texts_alone = texts and not (files or mask)
    if texts_alone and (by == "generator" or (by is None and reads_texts())):
        return sample_generator("text", texts, images, out, overrides, hole)
    if by == "generator":
        raise DarkroomError("--by generator needs --text: --embedding-of is only for the decoder.")
    if not (texts or files or mask) and condition() == "none":
        return sample_generator("none", ["images"], images, out, overrides, hole)
    given = [name for name, value in overrides._asdict().items() if value is not None and name != "seed"]
    given = [f"--{name.replace('_', '-')}" for name in given] + ["--inpaint"] * (hole is not None)
    if given:
        raise DarkroomError(
            f"{', '.join(given)}: valid with --labels or --by generator only; for the decoder, set `sample_decoder`."
        )
    return sample(texts, files, images, seed, out, mask)


def sample(
    texts: Sequence[str], files: Sequence[str], images: int, seed: int | None, out: str | None, mask: str | None = None
) -> str:
    """Write a grid with one row per text and per file; return a line for the terminal.

    Texts are sampled by CLIP, prior and decoder, variations of files by CLIP and decoder; a mask is inpainted where it
    is white. `seed` None: `sample_text.seed`; `out` None: a name made of texts and seed, in `logs/sample`.

    Raises:
        DarkroomError: no text or file is given, a model is missing or does not fit, or a file cannot be read or
            written.
    """
    if not texts and not files:
        raise DarkroomError("no input: give --text 'a red circle', --labels 3,5, or --embedding-of FILE.png.")
    if mask is not None and not files:
        raise DarkroomError("--mask selects what to inpaint in an image: name the image with --embedding-of FILE.png.")
    values = stage_params("sample_text")
    values["sample_text"] |= {} if seed is None else {"seed": seed}
    params = validate(SampleParams, values)
    try:
        require_models(["clip", "decoder", *(["prior"] if texts else [])])
    except DarkroomError as error:
        if not texts or condition() != "class":
            raise
        without_clip = lookup(read_yaml(PARAMS), "train_clip.source") == "none"
        reason = "no model here reads texts (`train_clip.source` is none)." if without_clip else str(error)
        raise DarkroomError(f"{reason} models/generator samples classes: use --labels.") from None
    target = grid_path(texts, files, params.sample_text.seed, out)
    set_threads(params.sample_text.threads)
    choose_device(params.run.device)
    from darkroom.tools.sample.pictures import pictures

    drawn = _written(target, pictures(params, texts, files, images, mask))
    each = " and ".join(["text"] * bool(texts) + ["file"] * bool(files))
    return f"{drawn}{images} image{'s' * (images > 1)} of each {each}: {target}"


def sample_generator(
    kind: Kind, words: Sequence[str], images: int, out: str | None, overrides: Overrides, hole: Hole | None = None
) -> str:
    """Write a grid of models/generator, a row per word, and single images; return lines for the terminal.

    `out` None: a name made of words and seed, in `logs/sample`.

    Raises:
        DarkroomError: a class or the model does not exist, a value does not fit, or a file cannot be read or written.
    """
    generator = [] if overrides.weights else ["generator"]  # a checkpoint does not need one
    require_models(["tokenizer", *generator, *(["clip"] if condition() in READ else [])])
    single = out is not None and Path(out).suffix.lower() not in _FILES

    request = requested(kind, words, overrides, hole)
    seed = request.seed
    if single and any(Path(str(out)).glob(f"{seed}-*.png")):
        raise DarkroomError(f"--out {out} holds images of the seed {seed}: choose another folder or another --seed.")
    target = grid_path(request.names, [], seed, f"{out}/{seed}-grid.png" if single else out)
    rows, origin = generated(request, images)
    each = "" if kind == "none" else f" of each {kind}"
    written = f"{_written(target, rows)}{images} image{'s' * (images > 1)}{each}: {target}"
    if not single:
        return written
    from darkroom.tools.sample.single import write_singles

    return f"{written}\n{write_singles(target.parent, 'caption' if kind == 'text' else kind, rows, origin)}"


def _written(target: Path, rows: "Sequence[Named]") -> str:
    """Write the grid, and return its rows for a terminal that shows images."""
    from darkroom.data.grid import captioned_grid, save_png
    from darkroom.tools.bands import drawn_here

    save_png(target, captioned_grid([images for _, images in rows], [name for name, _ in rows], columns=1))
    return drawn_here(rows)


def require_models(names: Sequence[str]) -> None:
    """Check that models exist. Raises DarkroomError with the stage of a missing one."""
    for name in names:
        folder = Path("models") / name
        if not any(folder.rglob("manifest.json")):
            raise DarkroomError(f"{folder} is missing: run `dvc repro {_MODELS[name]}` or `dvc checkout {folder}`.")


def grid_path(texts: Sequence[str], files: Sequence[str], end: object, out: str | None, place: Path = PLACE) -> Path:
    """Return the path of a grid: as given, or in `place`, named after its content and `end`.

    Raises:
        DarkroomError: see `require_picture`.
    """
    if out is None:
        words = "-".join([*texts, *(Path(file).stem for file in files)])
        return place / f"{re.sub(r'[^a-z0-9]+', '-', words.lower())[:_NAME].strip('-') or 'images'}-{end}.png"
    target = Path(out)
    require_picture(f"--out {out}", target)
    return target


def read_texts(path: Path, name: str) -> list[str]:
    """Return the non-empty lines of a UTF-8 file, with or without a byte-order mark, stripped of blanks.

    `name` is the origin of the file name, for errors: an option or a key with its value.

    Raises:
        DarkroomError: the file cannot be read, or has no text.
    """
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise DarkroomError(f"{name} cannot be read: {error}.") from error
    if not any(lines):
        raise DarkroomError(f"{name} has no text: write one text per line.")
    return [line for line in lines if line]
