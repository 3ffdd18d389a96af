"""Base U-Nets, each beside DALLE2-pytorch's, at equal parameters and resolution.

Both do the same on images of 32 pixels and their embeddings, of 512 numbers: the embedding is added to the time and
enters as 4 tokens, dropped in 1 of 10 images; cosine schedule of 1,000 steps; noise is predicted, and the variance
learned with weight 0.001; AdamW; gradients clipped at 0.5; weights are averaged after each step. No text. Theirs is
`DecoderTrainer`'s forward and update, as its script calls them. Their U-Net has as many levels of about the same widths
as ours, self-attention in the middle alone, which is its default and costs it less, though ours has it at its smallest
level too; its heads of attention, where they can be set, are ours. Where ours folds patches of 2 x 2 pixels into
channels, theirs is `memory_efficient`, which halves each level before its layers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from beside.comparison import THREADS, Comparison

SIZE, EMBEDDING, NEAR = 32, 512, 0.05  # theirs takes no embedding as wide as its tokens


@dataclass(frozen=True)
class Pair:
    """Two U-Nets of as many parameters: keys of `model`, and arguments of their `Unet`."""

    name: str
    model: dict[str, Any]
    arguments: dict[str, Any]


PAIRS = (
    Pair(
        "three levels",
        {"channels": [64, 128, 128], "attention": [False, False, True]},
        {"dim_mults": (1, 2, 2)},
    ),
    Pair(
        "two levels",
        {"channels": [64, 128], "attention": [False, True]},
        {"dim_mults": (1, 2), "num_resnet_blocks": (2, 1), "cond_dim": 128},
    ),
    Pair(
        "two levels, folded",
        {"channels": [64, 128], "attention": [False, True], "patch": 2},
        {"dim_mults": (1, 2), "memory_efficient": True},
    ),
)


def recipe(pair: Pair, rows: "ConditionedDataset") -> Any:
    """Return our recipe, on images and their embeddings."""
    from darkroom.diffusion.objectives import objective_of
    from darkroom.diffusion.scalers import EmbeddingScaler
    from darkroom.models.decoder.data import Conditioner, PixelSpace
    from darkroom.models.decoder.network import DecoderUNet
    from darkroom.models.decoder.opening import DecoderData, config_of
    from darkroom.models.decoder.recipe import DecoderRecipe
    from models.decoder.small_decoder import section

    model = {"layers": 1, "head_dim": 32, "norm_groups": 8, "image_tokens": 4, "image_map": 0, "text_tokens": False}
    model |= pair.model
    settings = section(model=model, size=SIZE)
    standard = EmbeddingScaler([0.0] * EMBEDDING, [1.0] * EMBEDDING)
    opened = DecoderData(PixelSpace(), Conditioner(standard), {}, 3, {}, EMBEDDING, None)
    objective = objective_of(settings.diffusion, 1000)
    network = DecoderUNet(config_of(settings, opened)).train()
    return DecoderRecipe(network, settings, objective, opened.space, opened.conditioner, 0, rows, rows)


class ConditionedDataset:
    """Images with their embeddings, by row number."""

    def __init__(self, images: Any, embeddings: Any) -> None:
        self.images, self.embeddings = images, embeddings

    def __len__(self) -> int:
        return len(self.images)

    def __getitems__(self, rows: Any, positions: Any = None) -> dict[str, Any]:
        """Return `images`, uint8, and `image`, float16."""
        return {"images": self.images[list(rows)].numpy(), "image": self.embeddings[list(rows)].numpy()}

    def keys(self, rows: Any) -> list[str]:
        """Return names of the rows."""
        return [str(row) for row in rows]


def original(pair: Pair) -> Any:
    """Return their decoder in its trainer."""
    from originals.loading import unclip

    upstream = unclip()
    arguments = {"num_resnet_blocks": 1, "cond_dim": 64, "attn_heads": 4, "attn_dim_head": 32, **pair.arguments}
    # No text is told: a null for one token, not for 256, is left without a use.
    unet = upstream.Unet(
        64, image_embed_dim=EMBEDDING, num_image_tokens=4, num_time_tokens=1, max_text_len=1, **arguments
    )
    decoder = upstream.Decoder(unet, image_size=SIZE, beta_schedule="cosine")
    return upstream.DecoderTrainer(
        decoder,
        lr=1e-4,
        wd=0.01,
        max_grad_norm=0.5,
        ema_beta=0.99,
        ema_update_after_step=0,
        ema_update_every=1,
        ema_use_foreach=True,
    )


def work(call: Any) -> float:
    """Return the multiplications and additions of a call, in thousand millions."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        call()
    return float(counter.get_total_flops()) / 1e9


def described(pair: Pair, made: Any, trainer: Any) -> str:
    """Return both sizes, in parameters and in work an image.

    Raises:
        SystemExit: they have not about as many parameters.
    """
    import torch

    from darkroom.models.decoder.network import Conditions

    unet = trainer.decoder.unets[0]
    counts = [sum(value.numel() for value in network.parameters()) for network in (made.model, unet)]
    if abs(counts[1] / counts[0] - 1) > NEAR:
        raise SystemExit(f"{pair.name}: {counts[0]:,} parameters of ours, {counts[1]:,} of theirs")
    x, step, embedding = torch.zeros(1, 3, SIZE, SIZE), torch.zeros(1, dtype=torch.int64), torch.zeros(1, EMBEDDING)
    mine = work(lambda: made.model(x, step, Conditions(image=embedding)))
    their = work(lambda: unet(x, step, image_embed=embedding))
    millions = " and ".join(f"{count / 1e6:.2f}" for count in counts)
    return f"{pair.name}, {millions} M parameters, {mine:.2f} and {their:.2f} GFLOP an image"


def compared(pair: Pair, batch: int) -> Comparison:
    """Return an update of ours, and one of theirs."""
    import torch

    from helpers import training
    from originals.pairs import Images

    rows = ConditionedDataset(Images(256, 3, SIZE).images, torch.randn(256, EMBEDDING).half())
    made, trainer = recipe(pair, rows), original(pair)
    loop = training(
        threads=THREADS,
        batch=batch,
        images=10**6 // batch * batch,
        log_every=10**6 // batch * batch,
        validate_every=10**6 // batch * batch,
        learning_rate=1e-4,
        weight_decay=0.01,
        clip_norm=0.5,
        ema_decay=0.99,
    )
    label = f"decoder, DALLE2-pytorch: {batch} images of {SIZE} px, {described(pair, made, trainer)}"
    images, embeddings = rows.images.float() / 255, rows.embeddings.float()

    def step() -> None:
        chosen = torch.randint(0, len(images), (batch,))
        trainer(images[chosen], image_embed=embeddings[chosen], unet_number=1)
        trainer.update(1)

    return Comparison(label, lambda: recipe(pair, rows), loop, step)


COMPARISONS: dict[str, list[Callable[[], Comparison]]] = {
    "decoder": [partial(compared, pair, batch) for pair in PAIRS for batch in (16, 32)]
}
