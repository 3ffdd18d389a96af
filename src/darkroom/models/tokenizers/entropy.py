"""The entropies of soft assignments to codes, which keep a lookup-free codebook sure and in use."""

from einops import rearrange
from torch import Tensor


def soft_codes(latents: Tensor, codebook: Tensor, inverse_temperature: float) -> Tensor:
    """Return p(code | z) of each place, (N, h w, K), of latents (N, C, h, w) and a codebook (K, C), all float32.

    p(k | z) = softmax_k(-t |z - c_k|^2) = softmax_k(2 t z.c_k), since all c_k are equally long (Yu et al., 2024, arXiv
    2310.05737, section 3.1); t is the inverse temperature.
    """
    flat = rearrange(latents, "n c h w -> (n h w) c")  # one product, not one an image
    p = (flat @ (2 * inverse_temperature * codebook).T).softmax(dim=-1)
    return rearrange(p, "(n places) k -> n places k", n=len(latents))


def code_entropies(p: Tensor, mean: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return H(p(code | z)), the mean over each image's places, (N,), and H(mean of p over all places), (), in nats.

    Args:
        p: of `soft_codes`, (N, h w, K).
        mean: over the images of all processes, (K,), where there are several: the mean of the gradients over the
            processes is then that of its entropy.
    """
    own = p.mean(dim=(0, 1))
    if mean is not None:
        own = own + (mean - own).detach()
    return _entropy(p).mean(dim=1), _entropy(own)


def _entropy(p: Tensor) -> Tensor:
    """Return -sum p log max(p, floor) over the last dimension: the floor keeps the gradient finite where p is 0.

    It is that of MUSE's quantiser, 1e-5, and lower where the codes are so many that their even frequency comes near it.
    """
    floor = min(1e-5, 0.65536 / p.shape[-1])
    return -(p * p.clamp(min=floor).log()).sum(dim=-1)
