"""Tokenizers, each beside the package that it comes from, at the same shapes.

A step of ours is an update of the real loop: with its clipping, averages of weights, logged norms and the codebook that
moves after it. `kl` has no original package: its network is diffusers' own, and what it is compared with is a plain
loop of PyTorch around that network.
"""

import copy
from typing import Any

from beside.comparison import ROOT, THREADS, Comparison


def settings(kind: str, keys: dict[str, Any], batch: int) -> Any:
    """Return the section `train_tokenizer` for a kind, with some of its keys, and a training that does not end."""
    from darkroom.check.check import read_params
    from darkroom.models.tokenizers.settings import TrainTokenizer

    values = read_params(ROOT / "params.yaml")["train_tokenizer"] | {"kind": kind, "teacher": "data/none"}
    values["training"] |= {"threads": THREADS, "batch": batch, "images": 10**6, "log_every": 10**6, "precision": "fp32"}
    values[kind] |= {"training": {}, **keys}
    return TrainTokenizer.model_validate(values)


def kl() -> Comparison:
    """Compare ours with a plain loop around diffusers' AutoencoderKL, at the shapes of params.yaml.

    The plain loop has the same losses, optimizer and clipping, and no averages of weights.
    """
    import torch
    from diffusers import AutoencoderKL
    from torch.nn import functional

    from darkroom.check.check import read_params
    from darkroom.models.tokenizers.kl.recipe import KLRecipe
    from originals.pairs import Images

    size = 32
    batch = read_params(ROOT / "params.yaml")["train_tokenizer"]["training"]["batch"]
    images = Images(64, 3, size)
    bare = {"perceptual": {"network": "none", "weight": 0.0}, "reconstruction": "mse"}
    section = settings("kl", bare, batch)
    chosen, training = section.chosen, section.own_training

    def recipe() -> KLRecipe:
        return KLRecipe(chosen, training, (3, size, size), images, images)

    theirs = AutoencoderKL.from_config(recipe().model.network.config)
    rate, decay = training.learning_rate, training.weight_decay
    optimizer = torch.optim.AdamW(theirs.parameters(), lr=rate, betas=tuple(training.betas), weight_decay=decay)
    data = 2 * images.unit - 1

    def step() -> None:
        x = data[torch.randint(0, len(data), (batch,))]
        posterior = theirs.encode(x).latent_dist
        divergence = posterior.kl().mean() / posterior.mean[0].numel()  # diffusers' own is a sum over an image's latent
        output = theirs.decode(posterior.sample()).sample
        (functional.mse_loss(output, x) + chosen.kl_weight * divergence).backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), training.clip_norm)
        optimizer.step()
        optimizer.zero_grad()

    label = f"{batch} images of {size} px, widths {', '.join(map(str, chosen.channels))}"
    return Comparison(f"kl against a plain loop of diffusers: {label}", recipe, training, step)


def vqgan(adversarial: bool, penalty_every: int = 1, plain: bool = False, batch: int = 8) -> Comparison:
    """Compare ours with MUSE's VQGAN-VAE: 64 px, 1,024 codes; VGG16 has random weights in both.

    The codes are lookup-free, or with `plain` those of a codebook of averages, compared by cosine, of 256 channels.
    Without discriminator and VGG16 MUSE's loss is the reconstruction alone: the quantiser's has no weight in ours, too.

    MUSE's gradient penalty is asked for every fourth step, and a defect makes it run in each: both are compared.
    """
    import torch
    from ema_pytorch import EMA

    from darkroom.models.tokenizers.perceptual import untrained
    from darkroom.models.tokenizers.vqgan.recipe import VQGANRecipe
    from originals.loading import muse
    from originals.pairs import Images
    from originals.vqgan import LFQ, VQ, averaged

    size, width, layers, codes = 64, 32, 3, 1024
    images = Images(64, 3, size)
    game = {
        "weight": float(adversarial),
        "loss": "hinge_sum",
        "start": 0,
        "adaptive": "perceptual" if adversarial else "taming",
        "channels": [width, width, 2 * width, 4 * width, 8 * width],
        "norm_groups": 16,
        "lr_scale": 1.0,
        "betas": [0.9, 0.99],
        "clip_norm": None,
        "gradient_penalty": 10.0,
        "gradient_penalty_every": penalty_every,
    }
    keys = {
        "width": width,
        "layers": layers,
        "residual_blocks": 1,
        "norm_groups": 16,
        "pixels": "unit",
        "quantiser": "vq" if plain else "lfq",
        "codebook_size": codes,
        "codebook_dim": 256,
        "lfq": {**LFQ, **({} if adversarial else {"entropy_weight": 0.0})},
        "vq": {**VQ, **({} if adversarial else {"commitment_weight": 0.0})},
        "reconstruction": "l1",
        "perceptual": {"network": "vgg16", "weight": 1.0} if adversarial else {"network": "none", "weight": 0.0},
        "adversarial": game,
    }
    section = settings("vqgan", keys, batch)
    perceptual = untrained("vgg16") if adversarial else None

    def recipe() -> VQGANRecipe:
        own = copy.deepcopy(perceptual)  # its layers are compiled where they stand
        return VQGANRecipe(section.chosen, section.own_training, (3, size, size), images, images, own)

    theirs = muse().VQGanVAE(
        dim=width,
        layers=layers,
        codebook_size=codes,
        discr_layers=4,
        use_vgg_and_gan=adversarial,
        vgg=perceptual.network if perceptual is not None else None,
    )
    if plain:
        theirs.quantizer = averaged(theirs, codes, 256, use_cosine_sim=True)
    judged = set(theirs.discr.parameters()) if adversarial else set()
    made = [value for value in theirs.parameters() if value not in judged and value.requires_grad]
    optimizers = [torch.optim.Adam(group, lr=3e-4) for group in (made, list(judged)) if group]
    average = EMA(theirs, update_after_step=0, update_every=1, ignore_names={"_vgg"})
    data = images.unit

    def step() -> None:
        rows = torch.randint(0, len(data), (2, batch))
        theirs(data[rows[0]], return_loss=True).backward()
        optimizers[0].step()
        optimizers[0].zero_grad()
        if adversarial:
            theirs(data[rows[1]], return_discr_loss=True, add_gradient_penalty=True).backward()
            optimizers[1].step()
            optimizers[1].zero_grad()
        average.update()

    with_what = f"VGG16, discriminator, our penalty every {penalty_every}" if adversarial else "bare"
    label = f"{batch} images of {size} px, {codes:,} codes, {'plain VQ' if plain else 'lookup-free'}, {with_what}"
    return Comparison(f"vqgan against muse-maskgit-pytorch: {label}", recipe, section.own_training, step)


def dvae(size: int, batch: int, tokens: int, dim: int, hidden: int) -> Comparison:
    """Compare ours with dalle-pytorch's DiscreteVAE: 3 layers, 2 residual blocks, as its script has them."""
    import torch

    from darkroom.models.tokenizers.dvae.recipe import DVAERecipe
    from originals.loading import dalle
    from originals.pairs import Images

    images = Images(64, 3, size)
    keys = {
        "codebook_size": tokens,
        "codebook_dim": dim,
        "layers": 3,
        "width": hidden,
        "residual_blocks": 2,
        "kl_weight": 0.0,
    }
    section = settings("dvae", keys, batch)

    def recipe() -> DVAERecipe:
        return DVAERecipe(section.chosen, section.own_training, (3, size, size), images, images)

    theirs = dalle().DiscreteVAE(
        image_size=size,
        num_tokens=tokens,
        codebook_dim=dim,
        num_layers=3,
        hidden_dim=hidden,
        num_resnet_blocks=2,
    )
    optimizer, data = torch.optim.Adam(theirs.parameters(), lr=1e-3), images.unit

    def step() -> None:
        theirs(data[torch.randint(0, len(data), (batch,))], return_loss=True, temp=1.0).backward()
        optimizer.step()
        optimizer.zero_grad()

    label = f"{batch} images of {size} px, {tokens:,} codes of {dim}, width {hidden}"
    return Comparison(f"dvae against dalle-pytorch: {label}", recipe, section.own_training, step)


def vq_ar() -> Comparison:
    """Compare ours with genie2's VQ autoregressive autoencoder, at the shapes of its script."""
    import torch

    from darkroom.models.tokenizers.vq_ar.recipe import VQARRecipe
    from originals.loading import genie
    from originals.pairs import Images

    size, batch, shape = 28, 32, {"dim": 256, "depth": 4, "heads": 4, "codebook_size": 64, "decay": 0.95}
    images = Images(64, 1, size)
    keys = {
        **shape,
        "patch": 4,
        "encoder_hidden": None,
        "codebook_dim": None,
        "head_dim": 16,
        "dropout": 0.0,
        "classes": False,
        "kmeans_init": False,
        "dead_below": 0.0,
        "logit_scale": 1.0,
        "logits_codebook": "after",
        "reconstruction_weight": 1.0,
        "recon_from_pred_codes": 0.5,
        "commitment_weight": 1.0,
        "ar_commitment_weight": 1.0,
    }
    section = settings("vq_ar", keys, batch)

    def recipe() -> VQARRecipe:
        return VQARRecipe(section.chosen, section.own_training, (1, size, size), images, images)

    theirs = genie().VQImageAutoregressiveAutoencoder(
        image_size=size, patch_size=4, dim_head=16, recon_from_pred_codes_weight=0.5, **shape
    )
    optimizer, data = torch.optim.Adam(theirs.parameters(), lr=3e-4), images.unit

    def step() -> None:
        theirs(data[torch.randint(0, len(data), (batch,))])[0].backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()

    label = f"{batch} images of {size} px, 49 codes of {shape['codebook_size']}, width {shape['dim']}, 4 layers"
    return Comparison(f"vq_ar against genie2-pytorch: {label}", recipe, section.own_training, step)


# By kind: each pair that is compared.
COMPARISONS = {
    "dvae": [lambda: dvae(64, 8, 1024, 128, 64), lambda: dvae(128, 8, 8192, 512, 64)],
    "vqgan": [
        lambda: vqgan(False),
        lambda: vqgan(False, batch=32),
        lambda: vqgan(False, plain=True, batch=32),
        lambda: vqgan(True),
        lambda: vqgan(True, 4),
    ],
    "vq_ar": [vq_ar],
    "kl": [kl],
}
