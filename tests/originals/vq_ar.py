"""`vq_ar` beside genie2-pytorch's `VQImageAutoregressiveAutoencoder`."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from darkroom.models.tokenizers.vq_ar.generate import gumbel, min_p_filter, sample_codes
from darkroom.models.tokenizers.vq_ar.recipe import VQARRecipe
from helpers import training
from models.tokenizers.making_vq_ar import settings
from originals.loading import genie
from originals.pairs import Images, apart, copy, gradients

SIZE, COUNT, DRAWN = 28, 4, 8

# By what is compared: our keys, and genie2's arguments.
VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "recon_from_pred_codes 0.5": ({"recon_from_pred_codes": 0.5}, {"recon_from_pred_codes_weight": 0.5}),
    "recon_from_pred_codes 1": ({"recon_from_pred_codes": 1.0}, {"recon_from_pred_codes_weight": 1.0}),
    "recon_from_pred_codes 0": ({"recon_from_pred_codes": 0.0}, {"recon_from_pred_codes_weight": 0.0}),
    "weights": (
        {
            "recon_from_pred_codes": 0.25,
            "reconstruction_weight": 3.0,
            "commitment_weight": 0.5,
            "ar_commitment_weight": 0.75,
        },
        {
            "recon_from_pred_codes_weight": 0.25,
            "recon_loss_weight": 3.0,
            "vq_commit_loss_weight": 0.5,
            "ar_commit_loss_weight": 0.75,
        },
    ),
}
LOSSES = ("cross_entropy", "reconstruction", "commitment", "ar_commitment")


def built(keys: dict[str, Any], arguments: dict[str, Any], original: Any) -> tuple[VQARRecipe, Any, Images]:
    """Return ours and theirs with the same weights, and images."""
    torch.manual_seed(0)
    images = Images(COUNT, 1, SIZE)
    section = settings(
        **{
            "dim": 32,
            "codebook_dim": None,
            "codebook_size": 64,
            "decay": 0.95,
            "kmeans_init": False,
            "dead_below": 0.0,
            "logit_scale": 1.0,
            "logits_codebook": "after",
            "reconstruction_weight": 1.0,
            "commitment_weight": 1.0,
            "ar_commitment_weight": 1.0,
            **keys,
        }
    )
    recipe = VQARRecipe(section, training(batch=COUNT), (1, SIZE, SIZE), images, images)
    ours = recipe.model
    with torch.no_grad():
        ours.start.normal_()
    theirs = original.VQImageAutoregressiveAutoencoder(
        image_size=SIZE,
        patch_size=section.patch,
        dim=section.dim,
        codebook_size=section.codebook_size,
        decay=section.decay,
        depth=section.depth,
        dim_head=section.head_dim,
        heads=section.heads,
        **arguments,
    )
    copy(layers(ours, theirs))
    given, taken = ours.quantiser._codebook, theirs.vq._codebook
    for name in ("embed", "embed_avg", "cluster_size"):
        getattr(taken, name).copy_(getattr(given, name))
    with torch.no_grad():
        theirs.start_token.copy_(ours.start[0])
    return recipe, theirs, images


def layers(ours: Any, theirs: Any) -> Iterator[tuple[nn.Module, nn.Module]]:
    """Yield the layers with weights of ours and of theirs, but for the start token."""
    transformer, to_prediction = theirs.decoder
    yield ours.to_latent, theirs.encode[2]
    yield ours.decoder, transformer
    yield ours.to_prediction, to_prediction
    yield ours.to_pixels, theirs.decode[0]


def compare() -> dict[str, float]:
    """Return how far apart they are, by what is compared."""
    original, found = genie(), {}
    for name, (keys, arguments) in VARIANTS.items():
        recipe, theirs, images = built(keys, arguments, original)
        ours = recipe.model
        batch = images.batch
        losses = recipe.loss(batch)
        losses["loss"].backward()
        with torch.no_grad():
            share = recipe.settings.recon_from_pred_codes
            made = ours(2 * images.unit - 1, torch.zeros(COUNT, dtype=torch.int64), share, after=True)
        recipe.move_codebook(batch)
        loss, (_, output), parts = theirs(images.unit)
        loss.backward()
        found |= {
            f"{name}: loss": apart(losses["loss"], loss),
            **{f"{name}: {part}": apart(losses[part], value) for part, value in zip(LOSSES, parts, strict=True)},
            f"{name}: output": apart((made.output + 1) / 2, output),
            f"{name}: codebook after the update": apart(ours.codebook, theirs.vq.codebook),
            f"{name}: gradient of the start token": apart(ours.start.grad[0], theirs.start_token.grad),
        }
        found[f"{name}: gradients"] = gradients(layers(ours, theirs))
    recipe, theirs, _ = built(*VARIANTS["weights"], original)
    for min_p, temperature in ((0.25, 1.5), (0.0, 1.0), (0.9, 0.7)):
        found |= drawn(recipe, theirs, original.sampling, min_p, temperature)
    logits = torch.randn(50, 64) * 3
    kept = torch.isfinite(min_p_filter(logits, 0.1)) == torch.isfinite(original.sampling.min_p_filter(logits, 0.1))
    return found | {"min-p filter: kept codes": float((~kept).sum())}


def drawn(recipe: VQARRecipe, theirs: Any, sampling: Any, min_p: float, temperature: float) -> dict[str, float]:
    """Return how many numbers of images differ, both drawn with the same noise, with and without our cache."""
    ours, size = recipe.model.eval(), recipe.settings.codebook_size
    how = SimpleNamespace(seed=0, images=DRAWN, batch=DRAWN, min_p=min_p, temperature=temperature, guidance=1.0)
    noise = (torch.from_numpy(gumbel(0, range(DRAWN), token, ours.tokens, size)) for token in range(ours.tokens))
    sampling.gumbel_noise = lambda logits: next(noise)
    images = theirs.sample(DRAWN, min_p=min_p, temperature=temperature)
    labels = torch.zeros(DRAWN, dtype=torch.int64)
    found = {}
    for cache in (True, False):
        codes = sample_codes(ours, how, range(DRAWN), labels, cache=cache)
        pixels = ((ours.pixels(ours.codebook[codes.flatten(1)]) + 1) / 2).clamp(0, 1)
        label = f"sampled, min_p {min_p}, temperature {temperature}, {'with' if cache else 'without'} cache"
        found[f"{label}: images"] = apart(pixels, images)
    return found
