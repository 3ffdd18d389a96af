"""What `score_generator` and `score_tokenizer_samples` do: samples and reference in, metrics and their card out."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from darkroom.artifacts.atomic import write_json
from darkroom.artifacts.manifest import ArtifactError, manifest_hash, open_artifact, read_manifest
from darkroom.data.reader import ImageShards
from darkroom.device import set_up_device
from darkroom.metrics import table
from darkroom.metrics.cards import score_card
from darkroom.metrics.cmmd import cmmd
from darkroom.metrics.floor import distances_of_unseen, notes_on_classes
from darkroom.metrics.held_out import held_out_reference
from darkroom.metrics.held_out_names import held_out_names
from darkroom.metrics.inception_score import inception_scores
from darkroom.metrics.labels import label_notes, require_known
from darkroom.metrics.matching import FREQUENCY, class_numbers
from darkroom.metrics.recognition import label_baselines
from darkroom.metrics.reference import Reference, distances
from darkroom.metrics.score import Samples
from darkroom.models.evaluators.load import Extractor, FeatureNetwork, Outputs, extract, open_evaluator
from darkroom.models.evaluators.registry import open_configured
from darkroom.models.generators.score_settings import Networks, ScoreGenerator
from darkroom.stages.copies import find_copies
from darkroom.stages.further import Further
from darkroom.terminal.progress import with_progress

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
) -> None:
    """Score the samples in `folder` through every extractor of the reference, and write how it was done.

    Samples that were not asked to be of a class have no label accuracy. `measured` gives scores beside these.
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

    def features_of(network: FeatureNetwork, name: str) -> Tensor:
        return extract(network, batches(name), settings.batch, where)

    seen = features_of(judge.network, "in_domain")
    scores = dict(more.scores)
    distribution, floors, notes = samples.get("distribution", FREQUENCY), {}, list(more.notes)
    facts, trained, own = {}, {}, None
    conditioned = samples.get("condition", "class") not in ("class", "none")  # made of held-out images
    for name, extractor in extractors.items():
        whole = Reference.load(REFERENCE, name, extractor.sha256)
        numbers = class_numbers(images.labels, whole.classes)
        real = whole.matched(distribution)
        own = real if name == "in_domain" else own
        features, others = seen, dict[str, float]()
        if name != "in_domain":
            features, others = _seen_by(name, extractor, real, features_of, settings.blocks)
        scores |= others | table.score_names(name, distances(features, real, settings.blocks, numbers))
        floors[name] = distances_of_unseen(whole, real, distribution, numbers, settings.blocks)
        if not conditioned and (unseen := held_out_reference(whole)) is not None:
            against = unseen.matched(distribution)
            found = distances(features, against, settings.blocks, numbers)
            scores |= table.score_names(name, held_out_names(found))
            trained[name] = distances_of_unseen(unseen, against, distribution, numbers, settings.blocks)
        facts[name] = {"sha256": extractor.sha256, "dim": extractor.dim, "n": real.n, "kid_n": len(real.kid_features)}
        facts[name] |= {"held_out_n": 0 if whole.unseen is None else len(whole.unseen)}
        facts[name]["resize"] = extractor.resize
        notes += notes_on_classes(whole, distribution, len(features), floors[name], reference["held_out"])
        print(f"{name}: {len(features):,} samples against {real.n:,} real images")
    kept = (None, None) if own is None else (own.kid_features, own.kid_weights)
    generated = Samples(len(images), batches, seen, judge.network, judge.classes, images.labels, where, *kept)
    for metric in table.SAMPLE_METRICS:
        scores |= metric.measure(generated)
    copies = find_copies(folder, samples, settings, judge.network, reference["held_out"], where)
    scores |= copies.scores
    scores["n"] = len(images)
    baselines = {
        "held_out": floors,
        **({"train": trained} if trained else {}),
        **_label_baselines(scores, reference, images),
    }
    baselines |= more.baselines | copies.baselines
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
            protocol=more.protocol | copies.protocol,
            baselines=baselines,
            more_notes=list(dict.fromkeys([*notes, *copies.notes])),
        ),
    )
    print("  ".join(f"{name} {value:.4g}" for name, value in scores.items()))


def _seen_by(
    name: str,
    extractor: Extractor,
    real: Reference,
    features_of: Callable[[FeatureNetwork, str], Tensor],
    blocks: int,
) -> tuple[Tensor, dict[str, float]]:
    """Return features of a published network, and the scores that it alone has: of Inception's logits, of CLIP."""
    network = extractor.network
    if name == "inception" and hasattr(network, "widths"):
        pool, _, logits = features_of(Outputs(network), name).split(network.widths, dim=1)
        return pool.contiguous(), inception_scores(logits, blocks)
    features = features_of(network, name)
    return features, cmmd(features, real.kid_features, blocks, real.kid_weights) if name == "clip" else {}


def _label_baselines(
    scores: Mapping[str, float], reference: Mapping[str, Any], images: ImageShards
) -> dict[str, dict[str, Any]]:
    """Return what stands beside the label accuracy, where there is one."""
    if "label_accuracy" not in scores or not reference["evaluator"]:
        return {}
    labels = [str(label) for label in images.labels]
    return {"label_accuracy": label_baselines(reference["evaluator"]["by_class"], labels, sorted(set(labels)))}
