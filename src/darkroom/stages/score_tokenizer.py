"""Stage `score_tokenizer`: score reconstructions, and write `metrics/tokenizer.json`, its card and a grid."""

from collections.abc import Iterator
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from darkroom.artifacts.atomic import atomic_folder, require_writable, write_bytes, write_json
from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.data.catalog import leakage_warnings, load_catalog
from darkroom.data.colours import card_entry
from darkroom.data.draw import drawn
from darkroom.data.grid import contact_sheet, save_png
from darkroom.data.reader import ImageShards
from darkroom.device import set_up_device
from darkroom.metrics.cards import score_card
from darkroom.metrics.codes import code_scores, histogram
from darkroom.metrics.image import image_scores, rows
from darkroom.metrics.reference import frechet_between
from darkroom.metrics.sample_scores import score_names
from darkroom.models.evaluators.load import Extractor, extract, open_evaluator
from darkroom.models.evaluators.pairs import counted, measures
from darkroom.models.evaluators.registry import Source, open_extractor
from darkroom.models.tokenizers.protocol import load_tokenizer, padded
from darkroom.models.tokenizers.settings import ScoreParams
from darkroom.terminal.terminal import with_progress

TOKENIZER, EXTRACTOR = Path("models/tokenizer"), Path("models/extractor")
METRICS, CARD, GRID = Path("metrics/tokenizer.json"), Path("cards/tokenizer.json"), Path("samples/reconstructions")
_COLUMNS = 8  # of the grid: they fit the page where an image is drawn at about 96 pixels


def run(params: ScoreParams) -> None:
    """Reconstruct a split with the tokenizer, compare it with the originals, and count its codes if it has any."""
    settings, batch = params.score_tokenizer, params.score_tokenizer.batch
    for path in (METRICS, CARD, GRID):
        require_writable(path)
    device = set_up_device(settings.threads, params.run.device)
    catalog = load_catalog()
    measured, notes, lpips = measures(settings, catalog.image_shape, device)
    shards, train = (ImageShards.open_parts(list(catalog.parts), split) for split in (settings.split, "train"))
    tokenizer, tokenizer_hash = load_tokenizer(TOKENIZER, catalog.image_shape)
    tokenizer = tokenizer.to(device)
    judge = open_evaluator(EXTRACTOR, catalog.image_shape)
    extractors = {"in_domain": Extractor(judge.network, judge.sha256, judge.network.dim)}
    if "inception" in params.reference_stats.extractors:
        inception = params.reference_stats.inception
        extractors["inception"] = open_extractor("inception", Source(Path(inception.weights), inception.sha256))

    def pairs(work: str) -> Iterator[tuple[Tensor, Tensor]]:
        for pixels in with_progress(shards.batches(batch), len(shards), work):
            images = torch.from_numpy(pixels)
            yield images, padded(tokenizer.reconstruct, images, batch, device)

    scores = image_scores(pairs("reconstructions"), measured)
    for name, extractor in extractors.items():
        originals = extract(extractor.network, shards.batches(batch), batch, device)
        decoded = extract(extractor.network, (image for _, image in pairs(name)), batch, device)
        distance = frechet_between(decoded, originals)
        scores |= {f"r{of}": value for of, value in score_names(name, {"fd": distance}).items()}
    counts = counted(tokenizer, train, shards, batch, device)
    if counts:
        scores |= code_scores(*counts, prod(tokenizer.latent_shape[1:]), prod(catalog.image_shape[1:]))
    write_json(METRICS, scores)
    write_json(
        CARD,
        score_card(
            scores=scores,
            extractors={
                name: {
                    "sha256": extractor.sha256,
                    "resize": extractor.resize,
                    "dim": extractor.dim,
                    "n": len(shards),
                    "kid_n": 0,
                }
                for name, extractor in extractors.items()
            },
            reference_id=catalog.fingerprint,
            reference_split=settings.split,
            n_fake=len(shards),
            protocol={**({"lpips": lpips} if lpips else {}), **card_entry(catalog.image_shape[0])},
            baselines={"leakage": catalog.leakage},
            more_notes=[*notes, *leakage_warnings(catalog.leakage)],
        ),
    )
    with atomic_folder(GRID) as folder:
        columns = min(_COLUMNS, settings.grid_images, len(shards))
        count = min(settings.grid_images, len(shards)) // columns * columns  # whole rows
        chosen = torch.from_numpy(shards.__getitems__(drawn(len(shards), count)))
        shown = padded(tokenizer.reconstruct, chosen, batch, device)
        save_png(folder / "grid.png", contact_sheet(rows(chosen.numpy(), shown.numpy(), columns), columns))
        write_bytes(folder / "codes.tsv", histogram(*(counts or (None, None))).encode())
        write_manifest(
            folder,
            "reconstructions",
            tokenizer=tokenizer_hash,
            split=settings.split,
            images=len(chosen),
            codes=len(counts[0]) if counts else 0,
            files=file_hashes(folder),
        )
    print("  ".join(f"{name} {value:.4g}" for name, value in scores.items()))
