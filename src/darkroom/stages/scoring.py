"""What the stages that score generated images do: samples and reference in, metrics and their card out."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from darkroom.artifacts.atomic import write_json
from darkroom.artifacts.manifest import ArtifactError, manifest_hash, open_artifact, read_manifest
from darkroom.data.reader import ImageShards
from darkroom.device import set_up_device
from darkroom.metrics import table
from darkroom.metrics.baselines import Floor, floor_baselines, noise_floor, notes_on_classes
from darkroom.metrics.building import held_out_reference
from darkroom.metrics.cards import score_card
from darkroom.metrics.feature_metrics import DISTANCE_METRICS
from darkroom.metrics.labels import label_notes, require_known
from darkroom.metrics.matching import FREQUENCY, class_numbers
from darkroom.metrics.measure import Further, Samples, measure
from darkroom.metrics.reference import Reference
from darkroom.metrics.sample_scores import held_out_names, score_names
from darkroom.models.evaluators.load import Evaluator, Extractor, FeatureNetwork, extract_views, open_evaluator
from darkroom.models.evaluators.registry import open_configured
from darkroom.models.generators.sample_settings import Networks, ScoreGenerator
from darkroom.stages.copies import Copies
from darkroom.stages.diversity import Diversity, Vgg16
from darkroom.terminal.terminal import with_progress

REFERENCE, EXTRACTOR = Path("data/reference"), Path("models/extractor")


# From the samples, what their manifest says, and the device, to further scores.
Measured = Callable[[ImageShards, Mapping[str, Any], torch.device], Further]


class Opened(NamedTuple):
    """The samples in a folder, what their manifest says, and what scores them."""

    folder: Path
    manifest: dict[str, Any]
    images: ImageShards
    judge: Evaluator
    reference: dict[str, Any]
    settings: ScoreGenerator
    device: torch.device

    def see(self, network: FeatureNetwork, name: str) -> Samples:
        """Return the samples in the features of an extractor called `name`."""
        seen = extract_views(network, self.batches(name), self.settings.batch, self.device)
        return Samples(name, seen, self.settings.blocks, labels=self.images.labels)

    def batches(self, work: str) -> Iterator[NDArray[np.uint8]]:
        """Yield the samples, uint8 (n, C, H, W); `work`: for the progress line."""
        return with_progress(self.images.batches(self.settings.batch), len(self.images), work)


class Compared(NamedTuple):
    """What samples score in the features of one extractor, and what the card says of it."""

    real: Reference
    found: Further  # scores and notes
    floors: dict[str, Floor]  # by the split of the real images that are scored: held_out, train
    facts: dict[str, Any]


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
    opened = _open(folder, settings, device)
    images, manifest, reference, held_out = (
        opened.images,
        opened.manifest,
        opened.reference,
        opened.reference["held_out"],
    )
    extractors = {name: open_configured(name, EXTRACTOR, networks) for name in reference["extractors"]}
    found = measured(images, manifest, opened.device) if measured is not None else Further()
    own, through = opened.see(opened.judge.network, "in_domain"), {}
    for name, extractor in extractors.items():
        seen = own if name == "in_domain" else opened.see(extractor.network, name)
        through[name] = _compare(seen, extractor, manifest, held_out)
        found |= through[name].found
    of_stage = (
        Copies(folder, manifest, settings, held_out),
        Diversity(images, settings.diversity.pairs, lpips, held_out),
    )
    real = through["in_domain"].real if "in_domain" in through else None
    of_own = measure(_of_in_domain(own, opened), real, (*table.SAMPLE_METRICS, *of_stage))
    scores = found.scores | of_own.scores | {"n": len(images)}
    baselines = floor_baselines({name: each.floors for name, each in through.items()})
    baselines |= found.baselines | of_own.baselines
    notes = [*found.notes, *label_notes(scores, baselines), *of_own.notes]
    facts = {name: each.facts for name, each in through.items()}
    write_json(metrics, scores)
    _write_card(card, opened, facts, Further(scores, found.protocol | of_own.protocol, notes, baselines))
    print("  ".join(f"{name} {value:.4g}" for name, value in scores.items()))


def _open(folder: Path, settings: ScoreGenerator, device: str) -> Opened:
    """Open what is scored and what scores it.

    Raises:
        ArtifactError: the extractor does not know the classes of the images, or another made the reference.
    """
    where = set_up_device(settings.threads, device)
    manifest, images = read_manifest(folder, "samples"), ImageShards.open_folder(folder, "samples")
    judge = open_evaluator(EXTRACTOR, images.image_shape)
    if any(label is not None for label in images.labels):
        require_known(images.labels, judge.classes)
    reference = open_artifact(REFERENCE, "reference")
    if reference["extractor"] != judge.fingerprint:
        raise ArtifactError(
            f"{REFERENCE} was made with another extractor than {EXTRACTOR} holds: make it again (`dvc repro`)."
        )
    return Opened(folder, manifest, images, judge, reference, settings, where)


def _of_in_domain(own: Samples, opened: Opened) -> Samples:
    """Return the samples in the in-domain extractor's features, with all that a metric may need of them."""
    return replace(
        own,
        images=opened.batches,
        classifier=opened.judge.network,
        classes=opened.judge.classes,
        recognised=(opened.reference["evaluator"] or {}).get("by_class"),
        device=opened.device,
    )


def _compare(samples: Samples, extractor: Extractor, manifest: Mapping[str, Any], split: str) -> Compared:
    """Compare samples with the reference, and with the held-out images `split` where they are enough."""
    name, blocks, distribution = samples.extractor, samples.blocks, manifest.get("distribution", FREQUENCY)
    whole = Reference.load(REFERENCE, name, extractor.sha256)
    numbers = class_numbers(samples.labels, whole.classes)
    samples = replace(samples, numbers=numbers)
    real = whole.matched(distribution)
    scores = score_names(name, measure(samples, real, table.FEATURE_METRICS).scores)

    def floor(of: Reference, matched: Reference) -> Floor:
        return noise_floor(of, matched, distribution, numbers, blocks, samples.seen)

    floors = {"held_out": floor(whole, real)}
    of_held_out = manifest.get("condition", "class") not in ("class", "none")  # made of held-out images
    if not of_held_out and (unseen := held_out_reference(whole, distribution)) is not None:
        against = unseen.matched(distribution)
        scores |= score_names(name, held_out_names(measure(samples, against, DISTANCE_METRICS).scores))
        floors["train"] = floor(unseen, against)
    facts = {"sha256": extractor.sha256, "dim": extractor.dim, "n": real.n, "kid_n": len(real.kid_features)}
    facts |= {"held_out_n": 0 if whole.unseen is None else len(whole.unseen), "resize": extractor.resize}
    notes = notes_on_classes(whole, distribution, len(samples.seen), floors["held_out"], split)
    print(f"{name}: {len(samples.seen):,} samples against {real.n:,} real images")
    return Compared(real, Further(scores, notes=notes), floors, facts)


def _write_card(path: Path, opened: Opened, facts: Mapping[str, Mapping[str, Any]], found: Further) -> None:
    card = score_card(
        scores=found.scores,
        extractors=facts,
        reference_id=manifest_hash(REFERENCE),
        reference_split=opened.reference["split"],
        n_fake=len(opened.images),
        classes=opened.manifest.get("distribution", FREQUENCY),
        blocks=opened.settings.blocks,
        sampler=opened.manifest["sampler"],
        samples=manifest_hash(opened.folder),
        protocol=found.protocol,
        baselines=found.baselines,
        more_notes=list(dict.fromkeys(found.notes)),
    )
    write_json(path, card)
