"""Each test image against what was made of its embedding or its caption: perceptual distance, and CLIP's cosine."""

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
    """Return LPIPS of pairs of uint8 images, and the hash of its network's weights.

    Args:
        weights: a file with torchvision's weights of VGG16, or `data/none`: downloaded.
        image_shape: (C, H, W).
        key: of params.yaml that names the weights, for messages.
        device: where the network works.

    Raises:
        DarkroomError: weights that are missing or not VGG16's, or images that are too small.
    """
    network = load_perceptual("lpips", weights, image_shape, key).to(device)

    def lpips(images: Tensor, others: Tensor) -> Tensor:
        with torch.inference_mode():
            pair = (each.to(device).float() / 127.5 - 1 for each in (images, others))  # [-1, 1]
            return network(*pair).cpu().double()

    return lpips, weights_hash(network)


def weights_hash(network: nn.Module) -> str:
    """Return the SHA-256 of a network's tensors, by name: of what was downloaded, and of the same from a file."""
    found = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        found.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


def image_embeddings(
    embed: Callable[[Tensor], Tensor], images: Iterable[Images], batch: int, device: torch.device
) -> Tensor:
    """Return embeddings (N, D) float32, on the CPU, of uint8 images in groups (n, C, H, W), always `batch` at once."""
    return torch.cat(list(batched(embed, images, batch, device)))


def text_embeddings(embed: Callable[[list[str]], Tensor], texts: Sequence[str], batch: int) -> Tensor:
    """Return embeddings (N, D) float32, on the CPU, of N texts; equal texts are embedded once, always `batch` at once.

    The last batch is filled up with the empty text, so that a text's bits do not depend on the number of texts.
    """
    names = list(dict.fromkeys(texts))
    groups = [names[first : first + batch] for first in range(0, len(names), batch)]
    found = [embed(group + [""] * (batch - len(group)))[: len(group)].float().cpu() for group in groups]
    row = {name: number for number, name in enumerate(names)}
    return torch.cat(found)[[row[text] for text in texts]]


def cosines(some: Tensor, others: Tensor) -> Tensor:
    """Return a·b / (|a| |b|) of each pair of rows of embeddings (N, D), (N,) float64 in [-1, 1].

    With one of an image and one of its text this is CLIPScore before its scale (Hessel et al., 2021, arXiv 2104.08718).
    """
    return functional.cosine_similarity(some.double(), others.double(), dim=1)


def clip_scores(originals: Tensor, made: Tensor, texts: Tensor | None) -> tuple[dict[str, float], dict[str, float]]:
    """Return CLIP's similarities, each with its standard error over the images, and what to read them against.

    Args:
        originals: embeddings of the test images, (N, D), N of 2 or more.
        made: of what was made of them, row by row.
        texts: of their captions, or None without captions.

    Returns:
        clip_image: the mean cosine of each made image and its original; clip_text: of it and the caption;
            clip_text_real: of the original and the caption, what clip_text would be of perfect images.
        image_other: the mean cosine of the made images with all other test images; text_other: with the captions of
            all others: what two get that do not belong together.
    """
    scores = mean_and_error("clip_image", cosines(made, originals).tolist())
    others = {"image_other": _of_others(made, originals)}
    if texts is not None:
        scores |= mean_and_error("clip_text", cosines(made, texts).tolist())
        scores |= mean_and_error("clip_text_real", cosines(originals, texts).tolist())
        others["text_other"] = _of_others(made, texts)
    return scores, others


def _of_others(some: Tensor, others: Tensor) -> float:
    """Return the mean cosine of each row of the one and every other row of the other."""
    one, two = (functional.normalize(each.double(), dim=1) for each in (some, others))
    pairs = len(one) * (len(one) - 1)
    return ((one.sum(dim=0) @ two.sum(dim=0) - (one * two).sum()) / pairs).item()
