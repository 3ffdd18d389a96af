"""`vqgan` beside muse-maskgit-pytorch's `VQGanVAE`."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from vector_quantize_pytorch import VectorQuantize

from darkroom.models.tokenizers.perceptual import VGGFeatures, untrained
from darkroom.models.tokenizers.vqgan.recipe import VQGANRecipe
from helpers import training
from models.tokenizers.small_vqgan import section
from originals.loading import muse
from originals.pairs import Images, apart, copy, gradients

WIDTH, LAYERS, BLOCKS, CODES, SIZE, COUNT = 32, 2, 2, 64, 32, 4
WITH_WEIGHTS = (nn.Conv2d, nn.ConvTranspose2d, nn.GroupNorm, nn.Linear)
LFQ = {"entropy_weight": 0.1, "diversity": 4.0, "inverse_temperature": 100.0, "commitment_weight": 0.0}
VQ = {
    "cosine": True,
    "decay": 0.8,
    "kmeans_init": False,
    "dead_below": 0.0,
    "gradient": "rotation",
    "commitment_weight": 1.0,
}

# By what is compared: our keys, the discriminator's, and MUSE's arguments.
VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "lfq, hinge_sum, l1": ({"quantiser": "lfq"}, {}, {}),
    "lfq, bce, mse": (
        {"quantiser": "lfq", "reconstruction": "mse"},
        {"loss": "bce"},
        {"use_hinge_loss": False, "l2_recon_loss": True},
    ),
    "vq by cosine, hinge_sum, l1": ({"quantiser": "vq"}, {}, {"vq": {"use_cosine_sim": True}}),
    "vq by distance, bce, mse, grey": (
        {"quantiser": "vq", "reconstruction": "mse", "vq": {"cosine": False}},
        {"loss": "bce"},
        {"use_hinge_loss": False, "l2_recon_loss": True, "vq": {"use_cosine_sim": False}},
    ),
}


def built(
    keys: dict[str, Any], adversarial: dict[str, Any], arguments: dict[str, Any], vgg: VGGFeatures, channels: int
) -> tuple[VQGANRecipe, Any, Images]:
    """Return ours and theirs with the same weights, and images."""
    torch.manual_seed(0)
    images = Images(COUNT, channels, SIZE)
    game = {
        "weight": 1.0,
        "loss": "hinge_sum",
        "start": 0,
        "adaptive": "perceptual",
        "channels": [WIDTH, WIDTH, 2 * WIDTH],
        "norm_groups": 16,
        "gradient_penalty": 10.0,
        "gradient_penalty_every": 1,
    }
    settings = section(
        adversarial=game | adversarial,
        vq=VQ | keys.get("vq", {}),
        **{
            "width": WIDTH,
            "layers": LAYERS,
            "residual_blocks": BLOCKS,
            "norm_groups": 16,
            "pixels": "unit",
            "codebook_size": CODES,
            "codebook_dim": 8,
            "lfq": LFQ,
            "perceptual": {"network": "vgg16", "weight": 1.0},
            **{name: value for name, value in keys.items() if name != "vq"},
        },
    )
    shape = (channels, SIZE, SIZE)
    recipe = VQGANRecipe(settings, training(batch=COUNT), shape, images, images, vgg)
    theirs = muse().VQGanVAE(
        dim=WIDTH,
        channels=channels,
        layers=LAYERS,
        codebook_size=CODES,
        encdec_num_resnet_blocks=(0, BLOCKS),
        discr_layers=2,
        vgg=vgg.network,
        **{name: value for name, value in arguments.items() if name != "vq"},
    )
    if "vq" in arguments:
        theirs.quantizer = averaged(theirs, CODES, 8, **arguments["vq"])
        copy_codebook(recipe, theirs)
    copy([*tokenizer(recipe, theirs), *discriminators(recipe, theirs)])
    return recipe, theirs, images


def averaged(theirs: Any, codes: int, dim: int, **arguments: Any) -> VectorQuantize:
    """Return the plain quantiser that MUSE's constructor would make, were a comma not missing there."""
    return VectorQuantize(
        dim=theirs.enc_dec.encoded_dim,
        codebook_size=codes,
        accept_image_fmap=True,
        codebook_dim=dim,
        decay=0.8,
        commitment_weight=1.0,
        **arguments,
    )


def tokenizer(recipe: VQGANRecipe, theirs: Any) -> Iterator[tuple[nn.Module, nn.Module]]:
    """Yield the layers with weights of ours and of theirs, in the order in which an image passes them."""
    ours, other = recipe.model, theirs.enc_dec
    order = (other.encoders, theirs.quantizer.project_in, theirs.quantizer.project_out, other.decoders)
    yield from zip(weighted(ours.encoder, ours.decoder), weighted(*order), strict=True)


def discriminators(recipe: VQGANRecipe, theirs: Any) -> Iterator[tuple[nn.Module, nn.Module]]:
    """Yield the layers with weights of the discriminators."""
    yield from zip(weighted(recipe.modules["discriminator"]), weighted(theirs.discr), strict=True)


def weighted(*modules: nn.Module) -> list[nn.Module]:
    """Return the layers with weights."""
    return [layer for module in modules for layer in module.modules() if isinstance(layer, WITH_WEIGHTS)]


def compare() -> dict[str, float]:
    """Return how far apart they are, by what is compared."""
    vgg = untrained("vgg16")
    assert isinstance(vgg, VGGFeatures)
    found: dict[str, float] = {}
    for name, (keys, adversarial, arguments) in VARIANTS.items():
        channels = 1 if "grey" in name else 3
        found |= {
            f"{name}: {what}": far
            for what, far in both_turns(*built(keys, adversarial, arguments, vgg, channels)).items()
        }
    return found


def both_turns(recipe: VQGANRecipe, theirs: Any, images: Images) -> dict[str, float]:
    """Return how far apart a turn of the tokenizer and one of the discriminator are."""
    with torch.no_grad():
        output, quantised = recipe.model(recipe.model.pixels(images.images))
        codes = theirs.eval().encode(images.unit)[1]
        decoded = theirs(images.unit)
    found = {
        "codes": float((codes.flatten() != quantised.codes.flatten()).sum()),
        "output": apart(output, decoded),
    }
    theirs.train()
    theirs.vgg.eval()  # in training it drops features
    judged = theirs(images.unit, return_discr_loss=True)
    judged.backward()
    if isinstance(theirs.quantizer, VectorQuantize):
        copy_codebook(recipe, theirs)  # that pass has moved it
    loss = theirs(images.unit, return_loss=True)
    for layer in weighted(theirs.discr):
        for parameter in layer.parameters():
            parameter.requires_grad_(False)  # the generator's turn adds nothing to the discriminator's gradients
    loss.backward()

    batch = images.batch
    losses = recipe.loss(batch)
    losses["loss"].backward()
    found |= {"loss": apart(losses["loss"], loss), "gradients": gradients(tokenizer(recipe, theirs))}
    assert recipe.adversary is not None
    judgement = recipe.adversary.loss(batch)["loss"]
    recipe.modules["discriminator"].zero_grad()
    judgement.backward()
    found |= {
        "discriminator's loss, with penalty": apart(judgement, judged),
        "discriminator's gradients": gradients(discriminators(recipe, theirs)),
    }
    recipe.move_codebook(batch)
    if isinstance(theirs.quantizer, VectorQuantize):
        found["codebook after the update"] = apart(recipe.model.codebook, theirs.quantizer.codebook)
    return found


def copy_codebook(recipe: VQGANRecipe, theirs: Any) -> None:
    """Put a codebook of averages where ours is."""
    given = recipe.model.quantiser.average._codebook  # type: ignore[union-attr]
    for name in ("embed", "embed_avg", "cluster_size"):
        getattr(theirs.quantizer._codebook, name).copy_(getattr(given, name))
