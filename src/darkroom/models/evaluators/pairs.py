"""Scores of pairs of an original and a generated image: perceptual distances, CLIP's cosine; and scores of codes.

LPIPS needs published weights of VGG16. Without them the in-domain extractor, which no training uses, is the perceptual
network.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from darkroom.data.reader import ImageShards
from darkroom.metrics.codes import Counts, code_counts
from darkroom.metrics.image import BASIC, RGBA, SMALLEST, Measure, ms_ssim
from darkroom.metrics.uncertainty import mean_and_error
from darkroom.models.evaluators.extractor import Classifier
from darkroom.models.evaluators.teacher import norm_lengths
from darkroom.models.tokenizers.perceptual import LevelDistance, load_perceptual
from darkroom.models.tokenizers.protocol import Codes, Tokenizer, padded, to_network
from darkroom.models.tokenizers.settings import ScoreTokenizer
from darkroom.terminal.terminal import with_progress


class ExtractorLevels(nn.Module):
    """The layers of the in-domain extractor, for `LevelDistance`."""

    def __init__(self, network: Classifier) -> None:
        super().__init__()
        self.blocks = network.levels

    def levels(self, x: Tensor) -> list[Tensor]:
        """Return the features of each block, (N, C_l, h_l, w_l), of images x (N, C, H, W) in [-1, 1]."""
        features = []
        for block in self.blocks:
            x = block(x)
            features.append(x)
        return features

    def lengths(self) -> Tensor:
        """Return the usual norm of the features at a position of each block, (blocks,) float32."""
        return norm_lengths([block[1] for block in self.blocks])  # type: ignore[index]


def in_domain_measure(network: Classifier, device: torch.device) -> Measure:
    """Return a function for the distances (N,) float64 of pairs of uint8 images (N, C, H, W), C the extractor's."""
    return _measure(LevelDistance(ExtractorLevels(network)).eval(), device)


def _measure(distance: nn.Module, device: torch.device) -> Measure:
    distance = distance.to(device)

    def measure(images: Tensor, others: Tensor) -> Tensor:
        with torch.inference_mode():
            return distance(*(to_network(each.to(device)) for each in (images, others))).cpu().double()

    return measure


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
    return _measure(network, device), weights_hash(network)


def weights_hash(network: nn.Module) -> str:
    """Return the SHA-256 of the tensors of a network, sorted by name: equal for downloaded weights and a local copy."""
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def text_embeddings(embed: Callable[[list[str]], Tensor], texts: Sequence[str], batch: int) -> Tensor:
    """Return embeddings (N, D) float32, on the CPU, of N texts; equal texts are embedded once, at a fixed batch size.

    The last batch is padded with empty texts, so that the bits of an embedding do not depend on the number of texts.
    """
    names = list(dict.fromkeys(texts))
    groups = [names[first : first + batch] for first in range(0, len(names), batch)]
    embeddings = [embed(group + [""] * (batch - len(group)))[: len(group)].float().cpu() for group in groups]
    row = {name: number for number, name in enumerate(names)}
    return torch.cat(embeddings)[[row[text] for text in texts]]


def cosines(some: Tensor, others: Tensor) -> Tensor:
    """Return a·b / (|a| |b|) of each pair of rows of embeddings (N, D), (N,) float64 in [-1, 1].

    Of an image and its text this is the unscaled CLIPScore (Hessel et al., 2021, arXiv 2104.08718).
    """
    return functional.cosine_similarity(some.double(), others.double(), dim=1)


def clip_scores(originals: Tensor, fake: Tensor, texts: Tensor | None) -> tuple[dict[str, float], dict[str, float]]:
    """Return CLIP's similarities with their standard errors over the images, and reference values for them.

    Args:
        originals: embeddings of the test images, (N, D), N at least 2.
        fake: embeddings of the generated images, (N, D), in the same order.
        texts: embeddings of the captions, (N, D); None: no captions.

    Returns:
        clip_image: the mean cosine of each generated image and its original; clip_text: of each generated image and its
            caption; clip_text_real: of each original and its caption, the value of clip_text for perfect images.
        image_other: the mean cosine of the generated images and all other test images; text_other: of the generated
            images and the captions of all other images: the values of unrelated pairs.
    """
    scores = mean_and_error("clip_image", cosines(fake, originals).tolist())
    others = {"image_other": _of_others(fake, originals)}
    if texts is not None:
        scores |= mean_and_error("clip_text", cosines(fake, texts).tolist())
        scores |= mean_and_error("clip_text_real", cosines(originals, texts).tolist())
        others["text_other"] = _of_others(fake, texts)
    return scores, others


def _of_others(some: Tensor, others: Tensor) -> float:
    """Return the mean cosine of row i of `some` and row j of `others`, over all i ≠ j."""
    one, two = (functional.normalize(each.double(), dim=1) for each in (some, others))
    pairs = len(one) * (len(one) - 1)
    return ((one.sum(dim=0) @ two.sum(dim=0) - (one * two).sum()) / pairs).item()


def measures(
    settings: ScoreTokenizer, image_shape: tuple[int, int, int], device: torch.device
) -> tuple[dict[str, Measure], list[str], str | None]:
    """Return the measures of an image, notes on those left out, and the hash of LPIPS's weights or None.

    Raises:
        DarkroomError: LPIPS is requested, but its weights are missing or not VGG16's, or the images are too small.
    """
    chosen, notes = {**BASIC, **(RGBA if image_shape[0] == 4 else {})}, []
    if min(image_shape[1:]) >= SMALLEST:
        chosen["ms_ssim"] = ms_ssim
    else:
        notes.append(f"ms_ssim is left out: its coarsest scale needs {SMALLEST} pixels a side, not {image_shape[1]}")
    if settings.lpips == "none":
        return chosen, notes, None
    chosen["lpips"], sha256 = perceptual_measure(Path(settings.vgg16), image_shape, "score_tokenizer.vgg16", device)
    return chosen, notes, sha256


def counted(
    tokenizer: Tokenizer, train: ImageShards, scored: ImageShards, batch: int, device: torch.device
) -> tuple[Counts, Counts] | None:
    """Return the count of each code in the train split and in the scored one; None without codes."""
    if not isinstance(tokenizer, Codes):
        return None
    discrete: Codes = tokenizer

    def codes(shards: ImageShards) -> Iterator[NDArray[np.int64]]:
        for images in with_progress(shards.batches(batch), len(shards), "codes"):
            yield padded(discrete.encode_codes, torch.from_numpy(images), batch, device).numpy()

    size = discrete.codebook_size
    return code_counts(codes(train), size), code_counts(codes(scored), size)
