"""Stage `score_tokenizer`: shards and tokenizer in, `metrics/tokenizer.json`, its card and a grid out."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from darkroom.artifacts.atomic import atomic_folder, require_writable, write_json
from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.data.catalog import load_catalog
from darkroom.data.grid import image_grid, save_png
from darkroom.data.reader import ImageShards
from darkroom.device import set_up_device
from darkroom.errors import DarkroomError
from darkroom.metrics.cards import score_card
from darkroom.metrics.extractors.load import extract, open_judge
from darkroom.metrics.frechet import frechet_distance
from darkroom.metrics.image import image_scores
from darkroom.metrics.reference import build_reference, moments_of
from darkroom.progress import told
from darkroom.schemas.score_tokenizer import Params
from darkroom.tokenizers.batches import reconstruct_all
from darkroom.tokenizers.load import load_tokenizer

TOKENIZER, EXTRACTOR = Path("models/tokenizer"), Path("models/extractor")
METRICS, CARD, GRID = Path("metrics/tokenizer.json"), Path("cards/tokenizer.json"), Path("samples/reconstructions")
_COLUMNS = 16


def rows(originals: np.ndarray, decoded: np.ndarray, columns: int) -> np.ndarray:
    """Return the images row by row: `columns` originals, below them their reconstructions, and so on."""
    pairs: list[np.ndarray] = []
    for at in range(0, len(originals), columns):
        pairs += [originals[at : at + columns], decoded[at : at + columns]]
    return np.concatenate(pairs)


def run(params: Params) -> None:
    """Reconstruct a split from the latents' means and compare with the originals."""
    settings = params.score_tokenizer
    for path in (METRICS, CARD, GRID):
        require_writable(path)
    device = set_up_device(settings.threads, params.run.device)
    catalog = load_catalog()
    shards = ImageShards.open_parts(list(catalog.parts), settings.split)
    if len(shards) < 2:
        raise DarkroomError(
            f"`score_tokenizer.split` is {settings.split}, which holds {len(shards)} images: 2 are needed."
        )
    tokenizer, tokenizer_hash = load_tokenizer(TOKENIZER, catalog.image_shape)
    tokenizer = tokenizer.to(device)
    judge = open_judge(EXTRACTOR, catalog.image_shape)

    def pairs() -> Iterator[tuple[Tensor, Tensor]]:
        for batch in told(shards.batches(settings.batch), len(shards), "reconstructions"):
            images = torch.from_numpy(batch)
            yield images, reconstruct_all(tokenizer, images, settings.batch, device)

    scores = image_scores(pairs())
    batch = settings.batch
    originals = extract(judge.network, shards.batches(batch), batch, device)
    decoded = extract(judge.network, (image for _, image in pairs()), batch, device)
    real = build_reference("in_domain", judge.sha256, [originals], len(originals), 2)
    scores["rfd"] = frechet_distance(real.moments, real.root, moments_of(decoded))
    write_json(METRICS, scores)
    write_json(
        CARD,
        score_card(
            scores=scores,
            extractors={"in_domain": {"sha256": judge.sha256, "dim": judge.network.dim, "n": real.n, "kid_n": 0}},
            reference_id=catalog.identity,
            reference_split=settings.split,
            n_fake=len(shards),
        ),
    )
    with atomic_folder(GRID) as folder:
        columns = min(_COLUMNS, settings.grid_images, len(shards))
        count = min(settings.grid_images, len(shards)) // columns * columns  # whole rows
        chosen = torch.from_numpy(shards.__getitems__(range(count)))
        shown = reconstruct_all(tokenizer, chosen, batch, device)
        save_png(
            folder / "grid.png", image_grid(rows(chosen.numpy(), shown.numpy(), columns), columns=columns, scale=2)
        )
        write_manifest(
            folder,
            "reconstructions",
            tokenizer=tokenizer_hash,
            split=settings.split,
            images=len(chosen),
            files=file_hashes(folder),
        )
    print("  ".join(f"{name} {value:.4g}" for name, value in scores.items()))
