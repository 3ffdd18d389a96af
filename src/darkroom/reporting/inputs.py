"""What the page shows, read and checked: artifacts that belong together, or one sentence on what does not."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from darkroom.artifacts.manifest import ArtifactError, manifest_hash, read_manifest
from darkroom.reporting.curves import Training, read_training
from darkroom.reporting.facts import Card, Catalog, Reconstructions, Reference, Samples, Scores, read_json, typed
from darkroom.reporting.pictures import Picture, read_png, read_svg
from darkroom.reporting.scores import COUNT, MEANING, unknown

CATALOG, REFERENCE = Path("data/catalog"), Path("data/reference")
SAMPLES, RECONSTRUCTIONS = Path("samples/dit"), Path("samples/reconstructions")
CURVES, DAG, GRID = Path("curves"), Path("docs/dag.svg"), "grid.png"
TRAININGS = ("teacher", "tokenizer", "extractor", "dit")


@dataclass(frozen=True)
class Scored:
    """A metrics file and its card: as types, and the whole card as it is in its file."""

    scores: Scores
    card: Card
    protocol: dict[str, Any]


@dataclass(frozen=True)
class Inputs:
    """All that the page is made of."""

    catalog: Catalog
    reference: Reference
    samples: Samples
    reconstructions: Reconstructions
    dit: Scored
    tokenizer: Scored
    trainings: tuple[Training, ...]
    sample_grid: Picture
    reconstruction_grid: Picture
    data_grid: Picture
    dag: Markup


def read_scored(name: str) -> Scored:
    """Return metrics/NAME.json and cards/NAME.json.

    Raises:
        ArtifactError: one is missing or broken, they name different scores, or the page cannot explain one.
    """
    metrics, card = Path(f"metrics/{name}.json"), Path(f"cards/{name}.json")
    protocol = read_json(card)
    facts = typed(Card, protocol, card)
    scores = typed(Scores, read_json(metrics), metrics)
    if strange := unknown(scores):
        raise ArtifactError(
            f"{metrics} holds `{strange[0]}`, which the page cannot explain: describe it in "
            "src/darkroom/reporting/scores.py."
        )
    if missing := sorted(set(scores) - {COUNT} ^ set(facts.formulas)):
        raise ArtifactError(f"{card} is not the card of {metrics}: only one of them has `{missing[0]}`.")
    if not set(scores) & set(MEANING):
        raise ArtifactError(f"{metrics} holds no score: run the stage that writes it again.")
    if scores.get(COUNT, facts.n_fake) != facts.n_fake:
        raise ArtifactError(
            f"{card} is not the card of {metrics}: they count {facts.n_fake} and {scores[COUNT]:g} images."
        )
    return Scored(scores, facts, protocol)


def _belong(inputs: Inputs) -> None:
    """Check that the artifacts were made from each other."""
    catalog, reference = manifest_hash(CATALOG), manifest_hash(REFERENCE)
    faults = {
        f"{REFERENCE} was made from another {CATALOG}": inputs.reference.catalog == catalog,
        f"cards/dit.json was made with another {REFERENCE}": inputs.dit.card.reference.id == reference,
        f"cards/tokenizer.json was made with another {CATALOG}": inputs.tokenizer.card.reference.id == catalog,
        f"{SAMPLES} has other classes than {CATALOG}": inputs.samples.classes == inputs.catalog.classes,
        f"{SAMPLES} has another number of images than cards/dit.json": inputs.samples.images == inputs.dit.card.n_fake,
        f"cards/dit.json was made from other {SAMPLES}": inputs.dit.card.samples == manifest_hash(SAMPLES),
    }
    for fault, fits in faults.items():
        if not fits:
            raise ArtifactError(f"{fault}: run `dvc repro`, which makes what is out of date again.")


def read_inputs() -> Inputs:
    """Return what the page is made of, from the root of the clone.

    Raises:
        ArtifactError: something is missing, broken, or made from something else; names the file.
    """
    inputs = Inputs(
        catalog=typed(Catalog, read_manifest(CATALOG, "catalog"), CATALOG),
        reference=typed(Reference, read_manifest(REFERENCE, "reference"), REFERENCE),
        samples=typed(Samples, read_manifest(SAMPLES, "samples"), SAMPLES),
        reconstructions=typed(Reconstructions, read_manifest(RECONSTRUCTIONS, "reconstructions"), RECONSTRUCTIONS),
        dit=read_scored("dit"),
        tokenizer=read_scored("tokenizer"),
        trainings=tuple(read_training(CURVES / name) for name in TRAININGS),
        sample_grid=read_png(SAMPLES / GRID),
        reconstruction_grid=read_png(RECONSTRUCTIONS / GRID),
        data_grid=read_png(CATALOG / GRID),
        dag=read_svg(DAG),
    )
    _belong(inputs)
    return inputs
