"""What `darkroom init` proposes for CLIP, the decoder and what is sampled of it."""

from darkroom.models.clip.settings import HEAD, RESNET_STEP, ClipModel
from darkroom.models.decoder.sample_settings import SampleDecoder, UNetSampling
from darkroom.models.prior.sample_settings import SampleText
from darkroom.params.section import NO_FILE
from darkroom.tools.init.facts import Facts
from darkroom.tools.init.reasons import Choice
from darkroom.tools.init.tiers import TRAININGS, Tier

UNET = "train_decoder.unets.base"


def unclip(facts: Facts, tier: Tier, size: int, positions: int) -> dict[str, Choice]:
    """Return CLIP, one U-Net of latents, and what is sampled of it.

    Args:
        facts: of the source.
        tier: the sizes of the networks.
        size: pixels of the stored images, height and width.
        positions: of a latent, height and width.
    """
    return {
        "train_clip.source": Choice("trained", f"{facts.captioned:.0%} of the images have a caption"),
        "train_clip.long_captions": Choice("truncate"),
        "train_clip.trained.model.context_length": context_length(facts),
        **_image_network(size),
        "train_decoder.tokenizer": Choice("models/tokenizer", "latents have a sixteenth of the positions"),
        "train_decoder.latents": Choice("data/latents"),
        "train_decoder.training.ema_decay": Choice(TRAININGS["train_decoder"].ema_decay),
        **decoder(positions),
        f"{UNET}.model.channels": Choice([*tier.unet]),
        f"{UNET}.model.attention": Choice([False] + [True] * (len(tier.unet) - 1)),
        "sample_decoder.images": Choice(SampleDecoder().images),
        "sample_decoder.common.solver": Choice(UNetSampling().solver),
        "sample_text.images": Choice(SampleText().images),
    }


def decoder(size: int) -> dict[str, Choice]:
    """Return the decoder's one U-Net; what it has no key for is the default, chosen for it."""
    return {
        f"{UNET}.size": Choice(size),
        f"{UNET}.embeddings": Choice("data/embeddings"),
        f"{UNET}.clip": Choice(NO_FILE),
        f"{UNET}.weights": Choice(NO_FILE),
        "sample_decoder.unets.base.guidance": Choice(UNetSampling().guidance),
        "sample_decoder.pictures.inpainted": Choice(0, "in-painting is of Gaussian diffusion"),
    }


def _image_network(size: int) -> dict[str, Choice]:
    """Return CLIP's network of images: it sees no more pixels than they have, a residual one multiples of 32."""
    model, default = "train_clip.trained.model", ClipModel()
    if size < RESNET_STEP:
        return {
            f"{model}.image_network": Choice("vit"),
            f"{model}.image_size": Choice(size),
            f"{model}.image_width": Choice(HEAD),
            f"{model}.image_layers": Choice(2),
        }
    return {
        f"{model}.image_network": Choice(default.image_network, "it learns from fewer images"),
        f"{model}.image_size": Choice(size // RESNET_STEP * RESNET_STEP),
        f"{model}.image_width": Choice(default.image_width),
        f"{model}.image_layers": Choice(default.image_layers),
    }


def context_length(facts: Facts) -> Choice:
    """Return how many tokens of a caption are read."""
    why = f"99 % of the captions have {facts.tokens} tokens at most"
    return Choice(
        min(77, max(16, -(-(facts.tokens or 77) // 8) * 8)),
        "the most that are read; longer captions are cut" if facts.long else why,
    )
