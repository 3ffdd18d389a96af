"""Scores of pairs of a test image and an image sampled from its embedding or caption: LPIPS, and CLIP's cosine."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from darkroom.metrics.batches import Images, batched
from darkroom.metrics.image import Measure
from darkroom.metrics.uncertainty import mean_and_error
from darkroom.models.tokenizers.perceptual import load_perceptual


def perceptual_measure(
    weights: Path, image_shape: tuple[int, int, int], key: str, device: torch.device
) -> tuple[Measure, str]:
    """Return a function for LPIPS of pairs of uint8 images, and the hash of the weights of its network.

    Args:
        weights: a file with torchvision's weights of VGG16; `data/none`: download them.
        image_shape: (C, H, W).
        key: the key of params.yaml that names the weights, for messages.
        device: the device of the network.

    Raises:
        DarkroomError: the weights are missing or not those of VGG16, or the images are too small.
    """
    network = load_perceptual("lpips", weights, image_shape, key).to(device)

    def lpips(images: Tensor, others: Tensor) -> Tensor:
        with torch.inference_mode():
            pair = (each.to(device).float() / 127.5 - 1 for each in (images, others))  # [-1, 1]
            return network(*pair).cpu().double()

    return lpips, weights_hash(network)


def weights_hash(network: nn.Module) -> str:
    """Return the SHA-256 of the tensors of a network, sorted by name: equal for downloaded weights and a local copy."""
    found = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        found.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


def image_embeddings(
    embed: Callable[[Tensor], Tensor], images: Iterable[Images], batch: int, device: torch.device
) -> Tensor:
    """Return embeddings (N, D) float32, on the CPU, of uint8 images in groups (n, C, H, W), at a fixed batch size."""
    return torch.cat(list(batched(embed, images, batch, device)))


def text_embeddings(embed: Callable[[list[str]], Tensor], texts: Sequence[str], batch: int) -> Tensor:
    """Return embeddings (N, D) float32, on the CPU, of N texts; equal texts are embedded once, at a fixed batch size.

    The last batch is padded with empty texts, so that the bits of an embedding do not depend on the number of texts.
    """
    names = list(dict.fromkeys(texts))
    groups = [names[first : first + batch] for first in range(0, len(names), batch)]
    found = [embed(group + [""] * (batch - len(group)))[: len(group)].float().cpu() for group in groups]
    row = {name: number for number, name in enumerate(names)}
    return torch.cat(found)[[row[text] for text in texts]]


def cosines(some: Tensor, others: Tensor) -> Tensor:
    """Return a·b / (|a| |b|) of each pair of rows of embeddings (N, D), (N,) float64 in [-1, 1].

    Of an image and its text this is the unscaled CLIPScore (Hessel et al., 2021, arXiv 2104.08718).
    """
    return functional.cosine_similarity(some.double(), others.double(), dim=1)


def clip_scores(originals: Tensor, made: Tensor, texts: Tensor | None) -> tuple[dict[str, float], dict[str, float]]:
    """Return CLIP's similarities with their standard errors over the images, and reference values for them.

    Args:
        originals: embeddings of the test images, (N, D), N at least 2.
        made: embeddings of the generated images, (N, D), in the same order.
        texts: embeddings of the captions, (N, D); None: no captions.

    Returns:
        clip_image: the mean cosine of each generated image and its original; clip_text: of each generated image and its
            caption; clip_text_real: of each original and its caption, the value of clip_text for perfect images.
        image_other: the mean cosine of the generated images and all other test images; text_other: of the generated
            images and the captions of all other images: the values of unrelated pairs.
    """
    scores = mean_and_error("clip_image", cosines(made, originals).tolist())
    others = {"image_other": _of_others(made, originals)}
    if texts is not None:
        scores |= mean_and_error("clip_text", cosines(made, texts).tolist())
        scores |= mean_and_error("clip_text_real", cosines(originals, texts).tolist())
        others["text_other"] = _of_others(made, texts)
    return scores, others


def _of_others(some: Tensor, others: Tensor) -> float:
    """Return the mean cosine of row i of `some` and row j of `others`, over all i ≠ j."""
    one, two = (functional.normalize(each.double(), dim=1) for each in (some, others))
    pairs = len(one) * (len(one) - 1)
    return ((one.sum(dim=0) @ two.sum(dim=0) - (one * two).sum()) / pairs).item()
