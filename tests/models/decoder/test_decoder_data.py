"""What CLIP says of a batch is the same whether it was stored or is computed while training."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from darkroom.diffusion.scalers import EmbeddingScaler, LatentScaler
from darkroom.models.clip.embedding import Embedder
from darkroom.models.clip.network import Clip, Contrastive
from darkroom.models.decoder.data import ClipConditioner, ConditionedDataset, LatentSpace, embedded
from darkroom.models.decoder.recipe import DecoderRecipe
from darkroom.models.tokenizers.kl.network import KLAutoencoder, build
from darkroom.training.loop import seeded
from models.clip.clips import SIZE, Pairs
from models.tokenizers.sections import kl


def small_clip() -> Clip:
    with seeded(0):
        return Clip(Contrastive(SIZE), "")


def test_clip_is_asked_in_float32_whatever_the_precision_of_the_training() -> None:
    clip = small_clip()
    batch = {"images": torch.from_numpy(Pairs().images)}
    conditioner = ClipConditioner(clip, EmbeddingScaler.of(embedded(clip, batch["images"]).numpy()), text=False)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = conditioner(batch)[0]
    assert found is not None and torch.equal(found, conditioner(batch)[0])  # type: ignore[arg-type]


def test_latents_are_encoded_in_float32_whatever_the_precision_of_the_training() -> None:
    with seeded(0):
        space = LatentSpace(KLAutoencoder(build(kl(), 3, 8)).eval(), LatentScaler([0.0] * 2, [1.0] * 2))
    batch = {"images": torch.from_numpy(Pairs().images)}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = space.data(batch)
    assert found.dtype == torch.float32 and torch.equal(found, space.data(batch))


def test_an_image_without_a_caption_has_no_encoding_as_in_stored_ones() -> None:
    clip = small_clip()
    captions = ["a red circle", None, "", *["a ring"] * 9]
    told = ConditionedDataset(Pairs(), captions=pa.chunked_array([pa.array(captions, pa.string())]), clip=clip)
    tokens = torch.from_numpy(told.__getitems__([0, 1, 2])["tokens"])
    encodings = ClipConditioner(clip, None, text=True)({"tokens": tokens})[1]
    rows = [{"key": str(number), "caption": caption} for number, caption in enumerate(captions[:3])]
    stored = Embedder(clip, 3, normalise=True, encodings=True)._texts(rows, "")["encoding"]
    assert encodings is not None and not stored[1].any()
    np.testing.assert_allclose(encodings.numpy(), stored, atol=2e-3)  # float16


def test_grids_read_latents_that_are_stored_in_bfloat16_and_codes() -> None:
    """NumPy has no bfloat16: what is read stays a tensor; codes become their vectors on the device."""
    recipe: Any = SimpleNamespace(model=torch.nn.Linear(1, 1))
    mean = torch.randn(2, 3, 2, 2).bfloat16()
    rows: Any = SimpleNamespace(__getitems__=lambda rows, positions=None: {"mean": mean}, codebook=None)
    assert torch.equal(DecoderRecipe._read(recipe, ConditionedDataset(rows), [0, 1]).data["mean"], mean)

    codes, book = torch.tensor([[[0, 1], [2, 1]]], dtype=torch.int32), np.float32([[1, 2], [3, 4], [5, 6]])
    rows = SimpleNamespace(__getitems__=lambda rows, positions=None: {"codes": codes}, codebook=book)
    found = DecoderRecipe._read(recipe, ConditionedDataset(rows), [0]).data
    assert list(found) == ["mean"]
    np.testing.assert_array_equal(found["mean"].numpy(), book[codes.numpy()].transpose(0, 3, 1, 2))
