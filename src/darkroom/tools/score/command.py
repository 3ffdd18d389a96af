"""`darkroom score`: two sets of images in, a page and a JSON file with scores and their card out."""

# No effect on any output: writes where a person says

import hashlib
import json
import os
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from darkroom.artifacts.atomic import write_bytes, write_json
from darkroom.artifacts.manifest import NAME as MANIFEST
from darkroom.device import set_up_device
from darkroom.errors import DarkroomError
from darkroom.metrics.cards import PRECISION
from darkroom.metrics.libraries import library_versions
from darkroom.metrics.table import formulas
from darkroom.metrics.table import scores as known
from darkroom.models.evaluators.load import Extractor
from darkroom.models.evaluators.published import Keys
from darkroom.models.evaluators.registry import Source, open_extractor
from darkroom.params.numbers import NO_FILE
from darkroom.report.numbers import Number, number
from darkroom.report.scores import error_of
from darkroom.terminal.tables import aligned
from darkroom.tools.score.conventions import CONVENTIONS, Convention
from darkroom.tools.score.measure import BLOCKS, measure, noise_floor, require_enough
from darkroom.tools.score.nearest import NEIGHBOURS, Neighbours, neighbours
from darkroom.tools.score.page import Row, page
from darkroom.tools.score.seen import Seen, see
from darkroom.tools.score.sides import Side, open_side

_NAMED = ("inception", "dinov2", "clip")
_FOLDERS = {"extractor": "in_domain", "tokenizer": "tokenizer"}  # by the kind in their manifest
_KEYS = Keys("`--weights`", "its hash", "name by `--extractor` a folder models/extractor or models/tokenizer")


class Request(NamedTuple):
    """What a person asks for: the options of `darkroom score`."""

    samples: Path
    against: Path
    extractor: str = "inception"
    weights: Path = Path(NO_FILE)
    convention: str = "darkroom"
    out: Path = Path("score")
    limit: int | None = None
    batch: int = 32
    threads: int | None = None
    device: str = "auto"
    download: bool = False

    @classmethod
    def of(cls, options: Namespace) -> "Request":
        """Return the request of a command line."""
        return cls(
            **{name: getattr(options, name) for name in cls._fields}
            | {name: Path(getattr(options, name)) for name in ("samples", "against", "weights", "out")}
        )


def score(request: Request) -> str:
    """Write `scores.json` and `index.html` into a folder, and return a table for the terminal.

    Raises:
        DarkroomError: images, statistics or weights are missing, damaged, or do not fit each other; names the file.
    """
    for what in ("limit", "batch", "threads"):
        if (value := getattr(request, what)) is not None and value < 1:
            raise DarkroomError(f"--{what} is {value}, and must be at least 1.")
    convention = CONVENTIONS[request.convention]
    made, real = (open_side(path, request.limit) for path in (request.samples, request.against))
    if made.images is None:
        raise DarkroomError(f"{made.path} holds statistics, and the samples must be images.")
    for side in (made, real):
        if side.images is not None:
            require_enough(side.path, len(side.images))
    name, extractor = _extractor(request, convention)
    _require_fit(real, name, extractor)
    device = set_up_device(request.threads or len(os.sched_getaffinity(0)), request.device)
    samples = see(made.images, extractor, request.batch, device, str(made.path))
    reference = None
    if real.images is not None:
        reference = see(real.images, extractor, request.batch, device, str(real.path))
    print("scores", flush=True)
    scores = measure(name, samples, reference, convention, real.pool, real.spatial)
    floor: dict[str, float] = {}
    count, pictures = 0, None
    if reference is not None and real.images is not None:
        floor, count = noise_floor(name, reference, len(samples), convention)
        pictures = neighbours(made.images, samples.pool, real.images, reference.pool)
    scores |= {"n": len(samples)}
    card = _card(request, name, extractor, convention, scores, (samples, reference), real)
    result = {"scores": scores, "floor": {**floor, "n": count} if floor else None, "card": card}
    write_json(request.out / "scores.json", result)
    rows = _rows(scores, floor)
    write_bytes(request.out / "index.html", page(request, rows, result, pictures).encode())
    return _table(rows, bool(floor)) + _copies(pictures) + f"\n{request.out / 'index.html'}"


def _extractor(request: Request, convention: Convention) -> tuple[str, Extractor]:
    """Return the extractor and its name: of a folder that of its kind."""
    source = Source(request.weights, None, convention.pillow, "l", request.download, _KEYS)
    if request.extractor in _NAMED:
        if convention.name != "darkroom" and request.extractor != "inception":
            raise DarkroomError(f"--convention {convention.name} is one of Inception, not of {request.extractor}.")
        return request.extractor, open_extractor(request.extractor, source)
    folder = Path(request.extractor)
    if not folder.is_dir():
        raise DarkroomError(
            f"--extractor is {request.extractor}, which is neither {', '.join(_NAMED)} nor a folder as "
            "models/extractor or models/tokenizer."
        )
    try:
        kind = str(json.loads((folder / MANIFEST).read_text())["kind"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DarkroomError(f"--extractor names {folder}, which holds no whole {MANIFEST} ({error}).") from error
    if kind not in _FOLDERS:
        raise DarkroomError(f"--extractor names {folder}, a {kind}: an extractor or a tokenizer is needed.")
    if convention.name != "darkroom" or request.weights != Path(NO_FILE):
        raise DarkroomError(f"--extractor names {folder}: it has weights of its own, and no --convention.")
    return _FOLDERS[kind], open_extractor(_FOLDERS[kind], replace(source, weights=folder))


def _require_fit(real: Side, name: str, extractor: Extractor) -> None:
    """Check that statistics are of the extractor's features, by their length."""
    widths = getattr(extractor.network, "widths", (extractor.dim, None))
    for what, found, wanted in (("mu", real.pool, extractor.dim), ("mu_s", real.spatial, widths[1])):
        if found is not None and wanted is not None and len(found.mean) != wanted:
            raise DarkroomError(
                f"{real.path} holds statistics `{what}` of {len(found.mean)} features, and {name} has {wanted}: they "
                "are another extractor's."
            )


def _card(
    request: Request,
    name: str,
    extractor: Extractor,
    convention: Convention,
    scores: Mapping[str, float],
    seen: tuple[Seen, Seen | None],
    real: Side,
) -> dict[str, Any]:
    """Return the card: what must be equal before two scores compare, and what was scored. No path, no time."""
    made, reference = seen
    few = len(made) < 2 * extractor.dim
    notes = [
        f"{len(made)} samples are fewer than twice the {extractor.dim} features: the Fréchet distance is dominated by "
        "its bias, compare at equal n only"
    ]
    return {
        "protocol": {
            "extractors": {name: {"sha256": extractor.sha256, "dim": extractor.dim, "resize": extractor.resize}},
            "convention": {"name": convention.name, "text": convention.text},
            "precision": PRECISION,
            "reference": {
                "images": None if reference is None else {"n": len(reference), "sha256": reference.sha256},
                "statistics": None if real.pool is None else _statistics_hash(real),
            },
            "n_fake": len(made),
            "blocks": BLOCKS,
            "libraries": library_versions(),
        },
        "treatment": {"samples": made.sha256},
        "formulas": formulas(scores),
        "notes": [*(notes if few else []), *_unpublished(name, extractor, request)],
    }


def _unpublished(name: str, extractor: Extractor, request: Request) -> list[str]:
    """Return a note where a file is not the published one: its scores compare with nobody's."""
    from darkroom.models.evaluators import dinov2, inception

    published = {"inception": [inception.PUBLISHED], "dinov2": list(dinov2.PUBLISHED.values())}
    if name in published and extractor.sha256 not in {one.sha256 for one in published[name]}:
        return [f"{request.weights.name} is not the published file of {name}: its scores compare with no other's"]
    return []


def _statistics_hash(real: Side) -> str:
    found = hashlib.sha256()
    for moments in (real.pool, real.spatial):
        if moments is not None:
            found.update(moments.mean.numpy().tobytes() + moments.cov.contiguous().numpy().tobytes())
    return found.hexdigest()


def _rows(scores: Mapping[str, float], floor: Mapping[str, float]) -> list[Row]:
    """Return the rows of the table, in the order of the table of scores."""
    found = []
    for name, score in known().items():
        if name in scores:
            errors = [each.get(error_of(name)) for each in (scores, floor)]
            real = number(floor[name], errors[1]) if name in floor else None
            found.append(Row(name, score.title or name, number(scores[name], errors[0]), real, score.meaning))
    return found


def _table(rows: list[Row], floor: bool) -> str:
    lines = [["", "samples", *(["real images"] if floor else [])]]
    for row in rows:
        lines.append([row.name, *(_cell(one) for one in row.cells[: 1 + floor])])
    return "\n".join(aligned(lines))


def _cell(one: Number | None) -> str:
    if one is None:
        return ""
    return one.text if one.se is None else f"{one.text} ± {one.se_text}"


def _copies(pictures: Neighbours | None) -> str:
    if pictures is None:
        return ""
    return (
        f"\nmedian distance to the nearest of the reference images: {pictures.samples:.4g}, of these to another of "
        f"them {pictures.reference:.4g}; each with its {NEIGHBOURS} nearest on the page"
    )
