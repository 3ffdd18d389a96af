"""Stage `reference_stats`: write `data/reference/`, statistics of real images and the scores of real images."""

from collections.abc import Sequence
from pathlib import Path

from darkroom.artifacts.atomic import atomic_folder, require_writable
from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.data.catalog import load_catalog
from darkroom.data.draw import drawn
from darkroom.data.grouping import near_twins
from darkroom.data.reader import ImageShards
from darkroom.device import set_up_device
from darkroom.metrics.batches import Views
from darkroom.metrics.labels import recognition
from darkroom.metrics.matching import class_numbers
from darkroom.metrics.measure import Samples, distances, measure
from darkroom.metrics.reference import build_reference, with_held_out
from darkroom.metrics.score import TOO_FEW
from darkroom.metrics.table import FEATURE_METRICS
from darkroom.models.evaluators.load import extract_views, open_evaluator, stream_views
from darkroom.models.evaluators.registry import open_configured
from darkroom.params.reference_stats import Params
from darkroom.terminal.terminal import with_progress

OUT, EXTRACTOR = Path("data/reference"), Path("models/extractor")


def halves(views: Views, name: str, blocks: int) -> dict[str, float]:
    """Return the distances between two random disjoint halves of N real images."""
    mixed = drawn(len(views))
    one, other = views.take(mixed[::2]), views.take(mixed[1::2])
    return distances(other, build_reference(name, "", [one], len(one), len(one)), blocks)


def _left_out(unseen: ImageShards, parts: Sequence[str]) -> list[int]:
    """Leave images with a near twin in training out of the unseen ones, and return their rows."""
    rows, count = near_twins(ImageShards.open_parts(parts, "train"), unseen), len(unseen)
    unseen.leave_out(rows)
    print(f"{len(rows):,} of {count:,} unseen images have a near twin in training: left out of the scores")
    return rows


def run(params: Params) -> None:
    """Store statistics of the reference split through each extractor, and the noise floor: real against real."""
    settings = params.reference_stats
    require_writable(OUT)
    device = set_up_device(settings.threads, params.run.device)
    catalog = load_catalog()
    judge = open_evaluator(EXTRACTOR, catalog.image_shape)
    extractors = {name: open_configured(name, EXTRACTOR, settings) for name in settings.extractors}
    parts, batch = list(catalog.parts), settings.batch
    real, unseen = (ImageShards.open_parts(parts, split) for split in (settings.split, settings.held_out))
    twins = _left_out(unseen, parts) if settings.twins == "quarantine" else []
    numbers, unseen_numbers = (class_numbers(each.labels, catalog.classes) for each in (real, unseen))
    metadata, known = {}, None
    with atomic_folder(OUT) as folder:
        for name, extractor in extractors.items():
            network = extractor.network
            print(f"{name}: {len(real):,} images of {settings.split}, {len(unseen):,} of {settings.held_out}")
            batches = stream_views(network, with_progress(real.batches(batch), len(real), name), batch, device)
            reference = build_reference(
                name, extractor.sha256, batches, len(real), settings.kid_images, numbers, catalog.classes
            )
            held_out = extract_views(network, with_progress(unseen.batches(batch), len(unseen), name), batch, device)
            reference = with_held_out(reference, held_out, unseen_numbers, settings.kid_images)
            reference.save(folder)
            samples = Samples(name, held_out, settings.blocks, unseen_numbers)
            unseen_scores = measure(samples, reference, FEATURE_METRICS).scores
            if name == "in_domain":
                known = recognition(judge.network, judge.classes, held_out.pool, unseen.labels)
            metadata[name] = {
                "sha256": extractor.sha256,
                "dim": extractor.dim,
                "n": reference.n,
                "kid_n": len(reference.kid_features),
                "held_out": {"n": len(held_out), **unseen_scores},
                "halves": halves(reference.stored_views, name, settings.blocks),
            }
            error = f"± {unseen_scores['fd_se']:.2g}" if "fd_se" in unseen_scores else TOO_FEW.format(len(held_out))
            print(f"{name}: unseen real images score fd {unseen_scores['fd']:.4g} {error}")
        write_manifest(
            folder,
            "reference",
            split=settings.split,
            held_out=settings.held_out,
            blocks=settings.blocks,
            catalog=catalog.fingerprint,
            leakage=catalog.leakage and {**catalog.leakage, **({"left_out": len(twins)} if twins else {})},
            **({"left_out": twins} if twins else {}),
            extractor=judge.fingerprint,
            extractors=metadata,
            evaluator=known,
            files=file_hashes(folder),
        )
