"""`darkroom score`: score one set of images against another, and write a JSON file with scores and card."""

import hashlib
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from darkroom.artifacts.atomic import write_json
from darkroom.artifacts.manifest import open_artifact
from darkroom.device import set_up_device
from darkroom.environment import choose_device
from darkroom.errors import DarkroomError
from darkroom.metrics.cards import PRECISION, library_versions
from darkroom.metrics.measure import Samples
from darkroom.metrics.table import formulas
from darkroom.metrics.table import scores as known
from darkroom.models.evaluators.load import Extractor
from darkroom.models.evaluators.published import Keys
from darkroom.models.evaluators.registry import Source, open_extractor
from darkroom.params.section import NO_FILE
from darkroom.report.numbers import number
from darkroom.report.scores import error_of
from darkroom.terminal.numbers import aligned
from darkroom.tools.cores import core_count
from darkroom.tools.score.images import size_text
from darkroom.tools.score.measure import (
    BLOCKS,
    CONVENTIONS,
    LEAST,
    Convention,
    Seen,
    measure,
    noise_floor,
    reference_of,
    see,
)
from darkroom.tools.score.nearest import draw_nearest
from darkroom.tools.score.options import Request
from darkroom.tools.score.sides import Side, fitting, open_side

_NAMED = ("inception", "dinov2", "clip")
_KEYS = Keys("`--weights`", "its hash", "add `--download`, or `--extractor` with a folder models/extractor")


def score(request: Request) -> str:
    """Write `scores.json` and `nearest.png` into a folder, and return a table for the terminal.

    Raises:
        DarkroomError: images, statistics or weights are missing, damaged or incompatible; the message names the file.
    """
    generated, real = (open_side(path, request.limit, request.size) for path in (request.samples, request.against))
    images = generated.images
    if images is None:
        raise DarkroomError(f"{generated.path} contains statistics, but the samples must be images.")
    for side in (generated, real):
        if side.images is not None and (count := len(side.images)) < LEAST:
            raise DarkroomError(
                f"{side.path} has {count} images, but scores with standard errors need at least {LEAST}."
            )
    choose_device(request.device)  # before CLIP's package or diffusers look for one
    convention = CONVENTIONS[request.convention]
    name, extractor, shape = _extractor(request, convention)
    real = fitting(generated, real, name, extractor, shape)
    device = set_up_device(request.threads or core_count(), request.device)
    samples = see(images, extractor, request.batch, device, str(generated.path))
    reference = None if real.images is None else see(real.images, extractor, request.batch, device, str(real.path))
    print(f"scores of {len(samples):,} samples", flush=True)
    began, metrics = time.monotonic(), convention.metrics
    compared = reference_of(name, reference, real.pool, real.spatial)
    scored = Samples(name, samples, BLOCKS, images=lambda _: images.batches(request.batch), device=device)
    scores = measure(scored, compared, metrics) | {"n": len(samples)}
    against = " and ".join([*(["statistics"] if real.pool else []), *([f"{len(reference):,}"] if reference else [])])
    columns, floor, copied, near = [("samples", f"{len(samples):,}", against, scores)], None, None, ""
    if reference is not None and real.images is not None:
        seconds = 2 * (time.monotonic() - began)
        print(f"computing the noise floor from real images: about {seconds:,.0f} s", flush=True)
        if floor := noise_floor(name, samples, reference, metrics):
            for title, of in (("samples", floor["samples"]), ("real images", floor["real"])):
                columns.append((title, f"{of['n']:,}", f"{of['n_reference']:,}", of))
        print(f"the nearest of {len(reference):,} reference images", flush=True)
        picture = request.out / "nearest.png"
        medians = draw_nearest(picture, images, samples.pool, real.images, reference.pool)
        near = (
            f"\nmedian distance to the nearest reference image: {medians[0]:.4g}; between reference images: "
            f"{medians[1]:.4g}; grid of the nearest: {picture}"
        )
        known_images = set(reference.images)
        copied = sum(image in known_images for image in samples.images)
    card = _card(request, name, extractor, convention, scores, (samples, reference), (generated, real), copied)
    write_json(request.out / "scores.json", {"scores": scores, "floor": floor, "copies": copied, "card": card})
    titles, counts, others, values = zip(*columns, strict=True)
    lines = [["", *titles], ["images", *counts], ["against", *others]]
    lines += [[one, *(_cell(one, of) for of in values)] for one in known() if one in scores]
    text = [*aligned(lines), *(f"note: {note}" for note in card["notes"])]
    return "\n".join(text) + near


def _cell(name: str, scores: Mapping[str, float]) -> str:
    if name not in scores:
        return ""
    one = number(scores[name], scores.get(error_of(name)))
    return one.text if one.se is None else f"{one.text} ± {one.se_text}"


def _extractor(request: Request, convention: Convention) -> tuple[str, Extractor, list[int] | None]:
    """Return the name of the extractor (in_domain for a folder), the extractor, and the shape of its images."""
    source = Source(request.weights, None, convention.pillow, request.download, _KEYS)
    if request.extractor in _NAMED:
        if convention.name != "darkroom" and request.extractor != "inception":
            raise DarkroomError(f"--protocol {convention.name} needs inception, not {request.extractor}.")
        return request.extractor, open_extractor(request.extractor, source), None
    folder = Path(request.extractor)
    if not folder.is_dir():
        raise DarkroomError(
            f"--extractor is {request.extractor}: use {', '.join(_NAMED)}, or a folder like models/extractor."
        )
    if convention.name != "darkroom" or request.weights != Path(NO_FILE):
        raise DarkroomError(f"--extractor {folder} has its own weights and protocol: remove --weights and --protocol.")
    shape = open_artifact(folder, "extractor").get("image_shape")
    return "in_domain", open_extractor("in_domain", replace(source, weights=folder)), shape


def _card(
    request: Request,
    name: str,
    extractor: Extractor,
    convention: Convention,
    scores: Mapping[str, float],
    features: tuple[Seen, Seen | None],
    sides: tuple[Side, Side],
    copied: int | None,
) -> dict[str, Any]:
    """Return the card: what must be equal so that two scores compare, and what was scored; no path, no time."""
    (samples, reference), (_, real) = features, sides
    shapes = [None if side.images is None else list(side.images.shape) for side in sides]
    images = None if reference is None else {"n": len(reference), "shape": shapes[1], "sha256": reference.sha256}
    crop = {"size": request.size, "channels": "RGB", "crop": "center", "resample": "bicubic"}
    return {
        "protocol": {
            "extractors": {name: {"sha256": extractor.sha256, "dim": extractor.dim, "resize": extractor.resize}},
            "convention": {"name": convention.name, "text": convention.text},
            "precision": PRECISION,
            "reference": {"images": images, "statistics": None if real.pool is None else _statistics_hash(real)},
            "n_fake": len(samples),
            "image_shape": shapes[0],
            "preparation": None if request.size is None else crop,
            "blocks": BLOCKS,
            "libraries": library_versions(),
        },
        "treatment": {"samples": samples.sha256},
        "formulas": formulas(scores),
        "notes": _notes(request, name, extractor, len(samples), sides, copied),
    }


def _notes(
    request: Request, name: str, extractor: Extractor, count: int, sides: tuple[Side, Side], copied: int | None
) -> list[str]:
    """Return notes on few samples, other sizes, copies, and weights that are not the published ones."""
    from darkroom.models.evaluators import dinov2, inception

    published = {"inception": [inception.PUBLISHED], "dinov2": list(dinov2.PUBLISHED.values())}
    generated, real = (None if side.images is None else side.images.shape for side in sides)
    notes = []
    if count < 2 * extractor.dim:
        notes.append(
            f"{count} samples are fewer than twice the {extractor.dim} features: the Fréchet distance is dominated by "
            "its bias, compare at equal n only"
        )
    if generated is not None and real is not None and generated[1:] != real[1:]:
        notes.append(
            f"samples are of {size_text(generated)}, reference images of {size_text(real)}: each is resized by itself, "
            "so the distances also tell the sizes apart"
        )
    if copied:
        notes.append(
            f"{copied} of {count} samples are reference images, pixel for pixel: distances reward them, and fall below "
            "those of real images"
        )
    if name in published and extractor.sha256 not in {one.sha256 for one in published[name]}:
        notes.append(f"{request.weights.name} is not the published file of {name}: its scores compare with no other's")
    return notes


def _statistics_hash(real: Side) -> str:
    hasher = hashlib.sha256()
    for moments in (real.pool, real.spatial):
        if moments is not None:
            hasher.update(moments.mean.numpy().tobytes() + moments.cov.contiguous().numpy().tobytes())
    return hasher.hexdigest()
