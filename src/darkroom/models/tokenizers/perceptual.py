"""Distances between images in the features of a frozen network: perceptual losses and LPIPS.

Each is a module that maps two batches of images, (N, C, H, W) in [-1, 1], C of 1, 3 or 4, to their distances, (N,)
float32. Gradients flow to the images; the network has none, is always in evaluation mode, and draws nothing.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, Protocol, Self

import torch
from torch import Tensor, nn

from darkroom.models.evaluators.published import Keys, Published, other_file, read_published
from darkroom.models.evaluators.teacher import open_teacher

KEY = "train_tokenizer.teacher"
# The hash is the part of it in the file's name.
VGG16 = Published(
    "torchvision's weights of VGG16", "https://download.pytorch.org/models/vgg16-397923af.pth", "397923af"
)
Network = Literal["teacher", "lpips", "vgg16"]

_LINEAR = Path("functional/image/lpips_models/vgg.pth")  # in torchmetrics
_TAPS = (3, 8, 15, 22, 29)  # the ReLUs of VGG16's `features` after which LPIPS compares: 1_2, 2_2, 3_3, 4_3, 5_3
_WIDTHS = (64, 128, 256, 512, 512)
# ε² of the published LPIPS, which only prevents a division by zero: the authors' code adds 1e-10 to |f|, torchmetrics'
# 1e-8 to |f|², and the two differ by 5e-9 where |f| is 1.
PUBLISHED = 1e-8
_RELATIVE = 0.1  # ε of `LevelDistance`, as a fraction of the features' full length
_SHIFT, _SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)  # of ImageNet's channels, for values in [-1, 1]


def to_rgb(x: Tensor) -> Tensor:
    """Return images (N, C, H, W) in [-1, 1] as RGB, (N, 3, H, W).

    Grey (C = 1) is repeated; premultiplied RGBA (C = 4) is composited on white: a·v + (1 - a), a from 0 to 1.
    """
    if x.shape[1] == 1:
        return x.expand(-1, 3, -1, -1)
    if x.shape[1] == 4:
        return x[:, :3] + 1 - x[:, 3:]
    return x


def unit_difference(a: Tensor, b: Tensor, softening: float | Tensor = PUBLISHED) -> Tensor:
    """Return (â - b̂)², (N, C, h, w) float32, f̂ = f / sqrt(|f|² + ε²), |f|² = Σ_c f_c² at each position.

    Zhang et al., 2018. The derivative of f̂ is 1 / ε at most, so ε bounds the effect of a small change of the features.

    Args:
        a: features of one batch of images, (N, C, h, w).
        b: features of the other, (N, C, h, w).
        softening: ε², a scalar.
    """
    first, second = (x.float() / (x.float().square().sum(dim=1, keepdim=True) + softening).sqrt() for x in (a, b))
    return (first - second).square()


class FeatureDistance(nn.Module):
    """A frozen network that compares images. It moves to the device of the images."""

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode."""
        return super().train(False)

    def frozen(self) -> Self:
        """Return the module itself, without gradients of its parameters, in evaluation mode."""
        return self.requires_grad_(False).eval()

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the distances, (N,) float32, of images a and b, each (N, C, H, W) in [-1, 1]."""
        if next(self.parameters()).device != a.device:
            self.to(a.device)
        return self.distance(a, b)

    def distance(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the distances of images on the network's device."""
        raise NotImplementedError


class Levels(Protocol):
    """A network, an `nn.Module`, whose features of several levels are compared."""

    def levels(self, x: Tensor) -> Sequence[Tensor]:
        """Return the features of each level, (N, C_l, h_l, w_l), of images x (N, C, H, W) in [-1, 1]."""
        ...

    def lengths(self) -> Tensor:
        """Return the usual norm of the features at a position of each level, (levels,) float32."""
        ...


class LevelDistance(FeatureDistance):
    """Σ over levels of the mean over positions of |â - b̂|²: LPIPS without learned weights, in a network of the data's.

    The network is the teacher in losses, and the in-domain extractor in scores.

    Source: Zhang et al., "The unreasonable effectiveness of deep features as a perceptual metric", 2018, arXiv
    1801.03924, equation 1 with w = 1, and f̂ = f / sqrt(|f|² + ε_l²) with ε_l = 0.1 s_l, s_l the `lengths` of level l.
    A small network, unlike VGG16, has positions at which nearly all features are zero. With a tiny ε their direction,
    mere rounding, would count as much as any other, and the gradient would be unbounded. Where features are as long as
    s_l the distance is 1 % less; where they are much shorter it is |a - b|² / ε_l². s_l follows from the network's
    weights, so a distance does not depend on the other images of a batch, or on its split.
    """

    softening: Tensor

    def __init__(self, network: Levels) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("softening", (_RELATIVE * network.lengths()).square(), persistent=False)  # ε_l²

    def distance(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the distances of images on the network's device."""
        levels = zip(self.network.levels(a), self.network.levels(b), self.softening.unbind(), strict=True)
        return torch.stack([unit_difference(x, y, s).sum(dim=1).mean((1, 2)) for x, y, s in levels]).sum(dim=0)


class LPIPS(FeatureDistance):
    """LPIPS with VGG16, version 0.1: Σ over levels of the mean over places of w · (â - b̂)².

    Source: Zhang et al., 2018, arXiv 1801.03924, equation 1; w from the authors, as in torchmetrics. Images enter in
    ImageNet's scale.
    """

    def __init__(self, features: nn.Sequential) -> None:
        super().__init__()
        self.features = features[: _TAPS[-1] + 1]
        for layer in self.features:
            if isinstance(layer, nn.ReLU):
                layer.inplace = False  # compared features must not be overwritten
        self.linear = nn.ParameterList(nn.Parameter(torch.ones(width, 1, 1)) for width in _WIDTHS)

    def levels(self, x: Tensor) -> list[Tensor]:
        """Return the features of the five levels of images x (N, 3, H, W) in [-1, 1]."""
        x, features = (x - x.new_tensor(_SHIFT).view(3, 1, 1)) / x.new_tensor(_SCALE).view(3, 1, 1), []
        for number, layer in enumerate(self.features):
            x = layer(x)
            if number in _TAPS:
                features.append(x)
        return features

    def distance(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the distances of images on the network's device."""
        levels = zip(self.linear, self.levels(to_rgb(a)), self.levels(to_rgb(b)), strict=True)
        return torch.stack([(w * unit_difference(x, y)).sum(dim=1).mean((1, 2)) for w, x, y in levels]).sum(dim=0)


def _bins(size: int, like: Tensor, bins: int = 7) -> Tensor:
    """Return (bins, size): row i averages places floor(i size / bins) to ceil((i + 1) size / bins)."""
    matrix = like.new_zeros(bins, size)
    for i in range(bins):
        start, end = i * size // bins, -(-(i + 1) * size // bins)
        matrix[i, start:end] = 1 / (end - start)
    return matrix


class VGGFeatures(FeatureDistance):
    """The mean squared difference of VGG16's 4,096 penultimate features, of images in [0, 1], not in ImageNet's scale.

    As in MUSE's VQGAN-VAE, but with the network's dropout switched off.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def features(self, x: Tensor) -> Tensor:
        """Return the features, (N, 4096), of images x (N, C, H, W) in [-1, 1]."""
        maps = self.network.features((to_rgb(x) + 1) / 2)  # type: ignore[operator]
        # The network's `avgpool`, whose gradient on CUDA is not deterministic.
        rows, columns = (_bins(size, maps) for size in maps.shape[2:])
        return self.network.classifier(torch.einsum("ih,nchw,jw->ncij", rows, maps, columns).flatten(1))  # type: ignore[operator]

    def distance(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the distances of images on the network's device."""
        return (self.features(a).float() - self.features(b).float()).square().mean(dim=1)


def untrained(network: Network) -> FeatureDistance:
    """Return the distance `lpips` or `vgg16`, with an uninitialised network except for LPIPS's linear layers."""
    from torchvision.models import vgg16

    with torch.random.fork_rng(devices=[]):  # the global generator must not change
        whole = vgg16(weights=None, init_weights=False)
    if network == "vgg16":
        del whole.classifier[-2:]  # dropout and the classes
        return VGGFeatures(whole).frozen()
    return LPIPS(whole.features).frozen()


def load_perceptual(
    network: Network, weights: Path, image_shape: tuple[int, int, int], key: str = KEY
) -> FeatureDistance:
    """Return the distance, frozen, with its weights, on the CPU, for images of shape (C, H, W).

    Args:
        network: teacher, lpips or vgg16.
        weights: the folder of a teacher; for lpips and vgg16 a file with VGG16's weights in torchvision's format, or
            `data/none`: torchvision's own, which it downloads once.
        image_shape: (C, H, W).
        key: the key of params.yaml that names the weights, for messages.

    Raises:
        DarkroomError: weights that are missing or damaged, or another network's.
    """
    if network == "teacher":
        return LevelDistance(open_teacher(weights, image_shape)).frozen()
    with torch.device("meta"):  # the tensors of the file replace these
        distance = untrained(network)
    keys = Keys(f"`{key}` in params.yaml", "its name", "take the perceptual loss `teacher`, which downloads nothing")
    tensors, _, path = read_published(weights, None, VGG16, keys)
    state = dict(tensors)
    if network == "lpips":
        spec = find_spec("torchmetrics")  # its location, without the seconds of an import
        assert spec is not None and spec.origin is not None
        linear = torch.load(Path(spec.origin).parent / _LINEAR, map_location="cpu", weights_only=True)
        state |= {f"linear.{n}": linear[f"lin{n}.model.1.weight"][0] for n in range(len(_WIDTHS))}
    known = distance.network if isinstance(distance, VGGFeatures) else distance
    names = known.state_dict().keys()
    try:
        if missing := sorted(names - state.keys()):
            raise KeyError(f"{missing[0]} is missing")
        known.load_state_dict({name: state[name].float() for name in names}, assign=True)
    except (RuntimeError, KeyError) as error:
        raise other_file(path, VGG16, keys, error) from error
    return distance.frozen()
