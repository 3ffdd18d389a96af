"""Score generated images against the reference, and write metrics and their card."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from darkroom.artifacts.atomic import write_json
from darkroom.artifacts.manifest import ArtifactError, manifest_hash, open_artifact, read_manifest
from darkroom.data.catalog import leakage_warnings
from darkroom.data.colours import card_entry
from darkroom.data.reader import ImageShards
from darkroom.device import set_up_device
from darkroom.metrics import table
from darkroom.metrics.baselines import noise_floor, notes_on_classes
from darkroom.metrics.batches import Views
from darkroom.metrics.cards import score_card
from darkroom.metrics.labels import label_notes, require_known
from darkroom.metrics.matching import FREQUENCY, class_numbers
from darkroom.metrics.measure import DISTANCE_METRICS, Measurement, Samples, measure
from darkroom.metrics.reference import Reference, held_out_reference
from darkroom.metrics.sample_scores import held_out_names, score_names
from darkroom.models.evaluators.load import Evaluator, Extractor, FeatureNetwork, extract_views, open_evaluator
from darkroom.models.evaluators.registry import open_configured
from darkroom.models.generators.sample_settings import Networks, ScoreGenerator
from darkroom.stages.copies import Copies
from darkroom.stages.diversity import Diversity, Vgg16
from darkroom.terminal.terminal import with_progress

REFERENCE, EXTRACTOR = Path("data/reference"), Path("models/extractor")


Paths = tuple[Path, Path, Path]  # of samples, metrics and card
# From the samples, their manifest and the device to additional scores.
Measured = Callable[[ImageShards, Mapping[str, Any], torch.device], Measurement]


class Compared(NamedTuple):
    """The scores of samples in the features of one extractor, and their entries on the card."""

    real: Reference
    results: Measurement  # scores and notes
    floors: dict[str, dict[str, float]]  # by the split of the real images that are scored: held_out, train
    facts: dict[str, Any]


def score(
    paths: Paths, settings: ScoreGenerator, networks: Networks, device: str, lpips: Vgg16 | None, measured: Measured
) -> None:
    """Score samples with every extractor of the reference, and write how they were scored.

    Samples without a requested class have no label accuracy. `measured` returns additional scores, `lpips` names the
    network of LPIPS, for diversity.
    """
    folder, metrics, card = paths
    where, batch = set_up_device(settings.threads, device), settings.batch
    manifest, images = read_manifest(folder, "samples"), ImageShards.open_folder(folder, "samples")
    judge, reference = _judge(images)
    held_out = reference["held_out"]
    extractors = {name: open_configured(name, EXTRACTOR, networks) for name in reference["extractors"]}
    results = measured(images, manifest, where)

    def batches(work: str) -> Iterator[NDArray[np.uint8]]:
        return with_progress(images.batches(batch), len(images), work)

    def see(network: FeatureNetwork, name: str) -> Views:
        return extract_views(network, batches(name), batch, where)

    own = Samples("in_domain", see(judge.network, "in_domain"), settings.blocks, labels=images.labels, device=where)
    through: dict[str, Compared] = {}
    for name, extractor in extractors.items():
        views = own.views if name == "in_domain" else see(extractor.network, name)
        through[name] = _compare(replace(own, extractor=name, views=views), extractor, manifest, held_out)
    recognised = (reference["evaluator"] or {}).get("by_class")
    own = replace(own, images=batches, classifier=judge.network, classes=judge.classes, recognised=recognised)
    unseen = held_out, reference.get("left_out", [])
    of_stage = Copies(folder, manifest, settings, *unseen), Diversity(images, settings, lpips, *unseen)
    real = through["in_domain"].real if "in_domain" in through else None
    results = _together(results, through, measure(own, real, (*table.SAMPLE_METRICS, *of_stage)), len(images))
    write_json(metrics, results.scores)
    facts = score_card(
        scores=results.scores,
        extractors={name: each.facts for name, each in through.items()},
        reference_id=manifest_hash(REFERENCE),
        reference_split=reference["split"],
        n_fake=len(images),
        classes=manifest.get("distribution", FREQUENCY),
        blocks=settings.blocks,
        sampler=manifest["sampler"],
        samples=manifest_hash(folder),
        protocol=results.protocol | card_entry(images.image_shape[0]),
        baselines=results.baselines | {"leakage": reference.get("leakage")},
        more_notes=[*results.notes, *leakage_warnings(reference.get("leakage"))],
    )
    write_json(card, facts)
    print("  ".join(f"{name} {value:.4g}" for name, value in results.scores.items()))


def _together(results: Measurement, through: Mapping[str, Compared], of_own: Measurement, count: int) -> Measurement:
    """Join the results of `count` samples and the noise floors; each note appears once."""
    for each in through.values():
        results |= each.results
    scores = results.scores | of_own.scores | {"n": count}
    floors: dict[str, Any] = {}  # scores by the split of the real images, held_out or train, and by extractor
    for name, each in through.items():
        for split, of_split in each.floors.items():
            floors.setdefault(split, {})[name] = of_split
    baselines = floors | results.baselines | of_own.baselines
    notes = dict.fromkeys([*results.notes, *label_notes(scores, baselines), *of_own.notes])
    return Measurement(scores, results.protocol | of_own.protocol, list(notes), baselines)


def _judge(images: ImageShards) -> tuple[Evaluator, dict[str, Any]]:
    """Return the in-domain extractor, and the manifest of the reference that it made.

    Raises:
        ArtifactError: the extractor has other classes than the images, or another extractor made the reference.
    """
    judge = open_evaluator(EXTRACTOR, images.image_shape)
    if any(label is not None for label in images.labels):
        require_known(images.labels, judge.classes)
    reference = open_artifact(REFERENCE, "reference")
    if reference["extractor"] != judge.fingerprint:
        raise ArtifactError(
            f"{REFERENCE} was made with another extractor than the one in {EXTRACTOR}: run `dvc repro`."
        )
    return judge, reference


def _compare(samples: Samples, extractor: Extractor, manifest: Mapping[str, Any], split: str) -> Compared:
    """Compare samples with the reference, and with the held-out images `split` if there are enough."""
    name, blocks, distribution = samples.extractor, samples.blocks, manifest.get("distribution", FREQUENCY)
    whole = Reference.load(REFERENCE, name, extractor.sha256)
    numbers = class_numbers(samples.labels, whole.classes)
    samples = replace(samples, numbers=numbers)
    real = whole.matched(distribution)
    scores = score_names(name, measure(samples, real, table.FEATURE_METRICS).scores)

    floors = {"held_out": noise_floor(whole, real, distribution, numbers, blocks)}
    of_held_out = manifest.get("condition", "class") not in ("class", "none")  # made of held-out images
    if not of_held_out and (unseen := held_out_reference(whole, distribution)) is not None:
        against = unseen.matched(distribution)
        scores |= score_names(name, held_out_names(measure(samples, against, DISTANCE_METRICS).scores))
        floors["train"] = noise_floor(unseen, against, distribution, numbers, blocks)
    facts = {"sha256": extractor.sha256, "dim": extractor.dim, "n": real.n, "kid_n": len(real.kid_features)}
    facts |= {"held_out_n": 0 if whole.unseen is None else len(whole.unseen), "resize": extractor.resize}
    notes = notes_on_classes(whole, distribution, len(samples.views), floors["held_out"], split)
    print(f"{name}: comparing {len(samples.views):,} samples with {real.n:,} real images")
    return Compared(real, Measurement(scores, notes=notes), floors, facts)
