"""What `score_generator` and `score_tokenizer_samples` do: samples and reference in, metrics and their card out."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from darkroom.artifacts.atomic import write_json
from darkroom.artifacts.manifest import ArtifactError, manifest_hash, open_artifact, read_manifest
from darkroom.data.reader import ImageShards
from darkroom.device import set_up_device
from darkroom.metrics import table
from darkroom.metrics.baselines import Floor, baselines_of, label_baselines, noise_floor, notes_on_classes
from darkroom.metrics.batches import Views
from darkroom.metrics.building import held_out_reference
from darkroom.metrics.cards import Further, score_card
from darkroom.metrics.labels import label_notes, require_known
from darkroom.metrics.matching import FREQUENCY, class_numbers
from darkroom.metrics.reference import Reference, distances, scores_alone
from darkroom.metrics.sample_scores import held_out_names, score_names
from darkroom.metrics.score import Samples
from darkroom.models.evaluators.load import FeatureNetwork, extract_views, open_evaluator
from darkroom.models.evaluators.registry import open_configured
from darkroom.models.generators.sample_settings import Networks, ScoreGenerator
from darkroom.stages.copies import find_copies
from darkroom.stages.diversity import Vgg16, find_diversity
from darkroom.terminal.terminal import with_progress

REFERENCE, EXTRACTOR = Path("data/reference"), Path("models/extractor")


# From the samples, what their manifest says, and the device, to further scores.
Measured = Callable[[ImageShards, Mapping[str, Any], torch.device], Further]


def score(
    folder: Path,
    settings: ScoreGenerator,
    networks: Networks,
    device: str,
    metrics: Path,
    card: Path,
    measured: Measured | None = None,
    lpips: Vgg16 | None = None,
) -> None:
    """Score the samples in `folder` through every extractor of the reference, and write how it was done.

    Samples that were not asked to be of a class have no label accuracy. `measured` gives scores beside these, `lpips`
    the network of LPIPS, for diversity.
    """
    where = set_up_device(settings.threads, device)
    samples = read_manifest(folder, "samples")
    images = ImageShards.open_folder(folder, "samples")
    judge = open_evaluator(EXTRACTOR, images.image_shape)
    if any(label is not None for label in images.labels):
        require_known(images.labels, judge.classes)
    reference = open_artifact(REFERENCE, "reference")
    if reference["extractor"] != judge.fingerprint:
        raise ArtifactError(
            f"{REFERENCE} was made with another extractor than {EXTRACTOR} holds: make it again (`dvc repro`)."
        )
    extractors = {name: open_configured(name, EXTRACTOR, networks) for name in reference["extractors"]}

    more = measured(images, samples, where) if measured is not None else Further()

    def batches(name: str) -> Iterator[NDArray[np.uint8]]:
        return with_progress(images.batches(settings.batch), len(images), name)

    def views_of(network: FeatureNetwork, name: str) -> Views:
        return extract_views(network, batches(name), settings.batch, where)

    own_views = views_of(judge.network, "in_domain")
    scores = dict(more.scores)
    distribution, notes = samples.get("distribution", FREQUENCY), list(more.notes)
    floors: dict[str, Floor] = {}
    trained: dict[str, Floor] = {}
    facts, own = {}, None
    conditioned = samples.get("condition", "class") not in ("class", "none")  # made of held-out images
    for name, extractor in extractors.items():
        whole = Reference.load(REFERENCE, name, extractor.sha256)
        numbers = class_numbers(images.labels, whole.classes)
        real = whole.matched(distribution)
        own = real if name == "in_domain" else own
        seen = own_views if name == "in_domain" else views_of(extractor.network, name)
        scores |= score_names(name, distances(seen, real, settings.blocks, numbers))
        scores |= scores_alone(seen, real, settings.blocks)
        floors[name] = noise_floor(whole, real, distribution, numbers, settings.blocks, seen)
        if not conditioned and (unseen := held_out_reference(whole, distribution)) is not None:
            against = unseen.matched(distribution)
            scores |= score_names(name, held_out_names(distances(seen, against, settings.blocks, numbers)))
            trained[name] = noise_floor(unseen, against, distribution, numbers, settings.blocks, seen)
        facts[name] = {"sha256": extractor.sha256, "dim": extractor.dim, "n": real.n, "kid_n": len(real.kid_features)}
        facts[name] |= {"held_out_n": 0 if whole.unseen is None else len(whole.unseen)}
        facts[name]["resize"] = extractor.resize
        notes += notes_on_classes(whole, distribution, len(seen), floors[name], reference["held_out"])
        print(f"{name}: {len(seen):,} samples against {real.n:,} real images")
    kept = (None, None) if own is None else (own.kid_features, own.kid_weights)
    generated = Samples(len(images), batches, own_views.pool, judge.network, judge.classes, images.labels, where, *kept)
    for metric in table.SAMPLE_METRICS:
        scores |= metric.measure(generated)
    found = find_copies(folder, samples, settings, judge.network, reference["held_out"], where)
    found |= find_diversity(images, settings.diversity.pairs, judge.network, lpips, reference["held_out"], where)
    scores |= found.scores | {"n": len(images)}
    baselines = _floors(floors, trained) | _label_baselines(scores, reference, images)
    baselines |= more.baselines | found.baselines
    notes += label_notes(scores, baselines)
    write_json(metrics, scores)
    write_json(
        card,
        score_card(
            scores=scores,
            extractors=facts,
            reference_id=manifest_hash(REFERENCE),
            reference_split=reference["split"],
            n_fake=len(images),
            classes=distribution,
            blocks=settings.blocks,
            seed=samples["sampler"]["seed"],
            sampler=samples["sampler"],
            samples=manifest_hash(folder),
            protocol=more.protocol | found.protocol,
            baselines=baselines,
            more_notes=list(dict.fromkeys([*notes, *found.notes])),
        ),
    )
    print("  ".join(f"{name} {value:.4g}" for name, value in scores.items()))


def _floors(held_out: Mapping[str, Floor], train: Mapping[str, Floor]) -> dict[str, Any]:
    """Return the noise floors for the card, and what stands beside them where they are of some classes alone."""
    named = {"held_out": held_out, "train": train}
    found: dict[str, Any] = {
        split: {name: floor.scores for name, floor in floors.items()} for split, floors in named.items() if floors
    }
    without = {split: of_others for split, floors in named.items() if (of_others := baselines_of(floors))}
    return {**found, **({"left_out": without} if without else {})}


def _label_baselines(
    scores: Mapping[str, float], reference: Mapping[str, Any], images: ImageShards
) -> dict[str, dict[str, Any]]:
    """Return what stands beside the label accuracy, where there is one."""
    if "label_accuracy" not in scores or not reference["evaluator"]:
        return {}
    labels = [str(label) for label in images.labels]
    return {"label_accuracy": label_baselines(reference["evaluator"]["by_class"], labels, sorted(set(labels)))}
