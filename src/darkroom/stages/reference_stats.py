"""Stage `reference_stats`: shards and extractor in, `data/reference/` out: real images, and what real images score."""

from pathlib import Path

from torch import Tensor

from darkroom.artifacts.atomic import atomic_folder, require_writable
from darkroom.artifacts.manifest import file_hashes, manifest_hash, open_artifact, write_manifest
from darkroom.data.catalog import load_catalog
from darkroom.data.reader import ImageShards
from darkroom.device import set_up_device
from darkroom.metrics.extractors.load import extract, load_extractor, stream
from darkroom.metrics.reference import build_reference, distances
from darkroom.schemas.reference_stats import Params

OUT, EXTRACTOR = Path("data/reference"), Path("models/extractor")


def halves(features: Tensor, name: str, blocks: int) -> dict[str, float]:
    """Return the distances between two disjoint halves of real features, even rows and odd rows."""
    even, odd = features[::2], features[1::2]
    return distances(odd, build_reference(name, "", [even], len(even), len(even)), blocks)


def run(params: Params) -> None:
    """Store statistics of the reference split through each extractor, and the noise floor: real against real."""
    settings = params.reference_stats
    require_writable(OUT)
    device = set_up_device(settings.threads, params.run.device)
    catalog = load_catalog()
    open_artifact(EXTRACTOR, "extractor")
    parts = list(params.parts)
    real, unseen = (ImageShards.open_parts(parts, split) for split in (settings.split, settings.held_out))
    facts = {}
    with atomic_folder(OUT) as folder:
        for name in settings.extractors:
            extractor = load_extractor(name, EXTRACTOR, Path(settings.inception.weights), settings.inception.sha256)
            network, batch = extractor.network, settings.batch
            batches = stream(network, real.batches(batch), batch, device)
            reference = build_reference(name, extractor.sha256, batches, len(real), settings.kid_images)
            reference.save(folder)
            held_out = extract(network, unseen.batches(batch), batch, device)
            unseen_scores = distances(held_out, reference, settings.blocks)
            facts[name] = {
                "sha256": extractor.sha256,
                "dim": extractor.dim,
                "n": reference.n,
                "kid_n": len(reference.kid_features),
                "held_out": {"n": len(held_out), **unseen_scores},
                "halves": halves(reference.kid_features, name, settings.blocks),
            }
            print(f"{name}: {reference.n:,} real images; unseen real images score fd {unseen_scores['fd']:.4g}")
        write_manifest(
            folder,
            "reference",
            split=settings.split,
            held_out=settings.held_out,
            blocks=settings.blocks,
            catalog=catalog.identity,
            extractor=manifest_hash(EXTRACTOR),
            inception=settings.inception.model_dump(),
            extractors=facts,
            files=file_hashes(folder),
        )
