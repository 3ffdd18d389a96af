"""Read sampled images and their scores: of the tokenizer, from embeddings, and from captions; also of the prior."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from darkroom.artifacts.manifest import read_manifest
from darkroom.metrics.table import of_group
from darkroom.report.metadata import PriorFacts, Samples, Scores, typed
from darkroom.report.numbers import number, written
from darkroom.report.pictures import Picture, read_png
from darkroom.report.scores import Row, Scored, read_scored, value_of

PRIOR, SAMPLES = Path("models/prior"), Path("samples")
GRID = "grid.png"
# Optional pictures next to the grid.
FURTHER = ("variations", "interpolations", "inpainted")


@dataclass(frozen=True)
class Conditioned:
    """Sampled images, most conditioned on embeddings or captions of test images: grid, further pictures, and scores."""

    samples: Samples
    scored: Scored
    grid: Picture
    pictures: dict[str, Picture]


def read_conditioned(name: str, scores: str = "") -> Conditioned | None:
    """Return the content of samples/NAME, metrics/SCORES.json and cards/SCORES.json; None if no image was sampled.

    scores: the name of the metrics file and its card; "": NAME.

    Raises:
        ArtifactError: a file is missing or damaged; the message names the file.
    """
    folder = SAMPLES / name
    samples = typed(Samples, read_manifest(folder, "samples"), folder)
    if not samples.images:
        return None
    further = {each: read_png(folder / f"{each}.png") for each in FURTHER if f"{each}.png" in samples.files}
    return Conditioned(samples, read_scored(scores or name), read_png(folder / GRID), further)


@dataclass(frozen=True)
class PriorScored:
    """The scores of the prior on `images` images of a split."""

    split: str
    images: int
    scores: Scores


def read_prior() -> PriorScored | None:
    """Return the scores in the manifest of the prior; None if no prior was trained.

    Raises:
        ArtifactError: the manifest is missing or damaged.
    """
    metadata = typed(PriorFacts, read_manifest(PRIOR, "prior"), PRIOR)
    if not metadata.trained or not metadata.scores:
        return None
    entries = dict(metadata.scores)
    split, images = typed(str, entries.pop("split", None), PRIOR), typed(int, entries.pop("images", None), PRIOR)
    return PriorScored(split, images, typed(Scores, entries, PRIOR))


PAIR_COLUMNS = ("these images", "their originals", "unseen renders", "by chance")
# For each score: the same score of the originals, and the entry of the card with the value of unrelated pairs.
_REAL = {"clip_text": "clip_text_real"}
_UNRELATED = {"clip_image": "image_other", "clip_text": "text_other"}


def pair_rows(scored: Scored) -> Iterator[Row]:
    """Yield a row for each score that compares an image with its original or its caption, for `PAIR_COLUMNS`."""
    scores, reader = scored.scores, scored.card.baselines.scene_reader
    for name in of_group("pairs"):
        if name in _REAL.values() or (run := value_of(name, scores)) is None:
            continue
        originals = value_of(_REAL.get(name, ""), scores)
        renders = None
        if name in reader.get("originals", {}):
            originals = number(reader["originals"][name])
            renders = number(reader["renders"][name]) if name in reader["renders"] else None
        other = scored.card.baselines.clip_unrelated.get(_UNRELATED.get(name, ""))
        yield Row(name, run, (originals, renders, None if other is None else number(other)))


# Settings of each network on the page; the protocol lists the rest.
_SAMPLING = ("solver", "steps", "guidance")


def sampling(sampler: Mapping[str, Any]) -> str:
    """Return the sampler settings as text: `solver dpm, steps 16; up: steps 8`, also those of a prior."""
    decoder = sampler.get("decoder", sampler)
    prior = {"the prior": sampler["prior"]} if "prior" in sampler else {}
    named = {"": decoder.get("common", {}), **decoder.get("unets", {}), **prior}
    settings = {name: [f"{key} {written(of[key])}" for key in _SAMPLING if key in of] for name, of in named.items()}
    return "; ".join(f"{name}{': ' if name else ''}{', '.join(keys)}" for name, keys in settings.items() if keys)
