from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from darkroom.artifacts.manifest import sha256_file
from darkroom.errors import DarkroomError
from darkroom.models.evaluators.dinov2 import PUBLISHED, Dinov2, open_dinov2
from darkroom.params.section import NO_FILE
from models.evaluators.weights import random_dinov2


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dinov2") / "weights.pth"
    torch.save(random_dinov2(), path)
    return path


def images(n: int, side: int = 64) -> Tensor:
    return torch.randint(0, 256, (n, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def reference(state: dict[str, Tensor], x: Tensor) -> Tensor:
    """Another implementation: torch's own transformer layers, the scale of each branch folded into its last weights."""
    width = state["cls_token"].shape[-1]
    x = functional.conv2d(x, state["patch_embed.proj.weight"], state["patch_embed.proj.bias"], stride=14)
    grid = x.shape[-1]
    x = torch.cat([state["cls_token"].expand(len(x), -1, -1), x.flatten(2).mT], dim=1)
    own, places = state["pos_embed"][:, :1], state["pos_embed"][:, 1:]
    side = int(places.shape[1] ** 0.5)
    if side != grid:
        square = places.mT.reshape(1, width, side, side)
        square = functional.interpolate(square, scale_factor=(grid + 0.1) / side, mode="bicubic")
        places = square.reshape(1, width, -1).mT
    x = x + torch.cat([own, places], dim=1)
    for block in range(3):
        of = {name.removeprefix(f"blocks.{block}."): value for name, value in state.items()}
        layer = nn.TransformerEncoderLayer(
            width, width // 64, 4 * width, 0.0, functional.gelu, 1e-6, batch_first=True, norm_first=True
        )
        layer.load_state_dict(
            {
                "self_attn.in_proj_weight": of["attn.qkv.weight"],
                "self_attn.in_proj_bias": of["attn.qkv.bias"],
                "self_attn.out_proj.weight": of["ls1.gamma"][:, None] * of["attn.proj.weight"],
                "self_attn.out_proj.bias": of["ls1.gamma"] * of["attn.proj.bias"],
                "linear1.weight": of["mlp.fc1.weight"],
                "linear1.bias": of["mlp.fc1.bias"],
                "linear2.weight": of["ls2.gamma"][:, None] * of["mlp.fc2.weight"],
                "linear2.bias": of["ls2.gamma"] * of["mlp.fc2.bias"],
                **{f"norm{n}.{kind}": of[f"norm{n}.{kind}"] for n in (1, 2) for kind in ("weight", "bias")},
            }
        )
        x = layer.eval()(x)
    return functional.layer_norm(x, (width,), state["norm.weight"], state["norm.bias"], 1e-6)


@pytest.mark.parametrize("side", [112, 518])  # positions resized, and as they were trained
def test_agrees_with_torchs_transformer(weights: Path, side: int) -> None:
    network, found = open_dinov2(weights, sha256_file(weights))
    assert (network.dim, found) == (128, sha256_file(weights))
    x = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        torch.testing.assert_close(network.tokens(x), reference(random_dinov2(), x), atol=2e-5, rtol=1e-5)


def test_features_are_the_class_token_of_the_resized_image(weights: Path) -> None:
    network, _ = open_dinov2(weights, None)
    batch = images(2)
    x = functional.interpolate(batch.float() / 255, size=224, mode="bicubic", antialias=True)
    x = (x - torch.tensor([0.485, 0.456, 0.406])[:, None, None]) / torch.tensor([0.229, 0.224, 0.225])[:, None, None]
    with torch.inference_mode():
        found = network.features(batch)
        torch.testing.assert_close(found, reference(random_dinov2(), x)[:, 0], atol=2e-5, rtol=1e-5)
        assert network.features(batch[:, :1]).shape == (2, 128)  # grey
    assert found.dtype == torch.float32


def test_published_sizes() -> None:
    """The names and shapes of ViT-L/14, as they are published."""
    with torch.device("meta"):
        network = Dinov2(1024, 24, 14, 1 + 37 * 37)
    state = network.state_dict()
    assert (state["blocks.23.attn.qkv.weight"].shape, state["pos_embed"].shape) == ((3072, 1024), (1, 1370, 1024))
    assert sum(value.numel() for value in state.values()) == 304_368_640  # as published
    assert len(state) == 4 + 1 + 24 * 14 + 2


def test_other_files_are_refused(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DarkroomError, match="has the sha256"):
        open_dinov2(weights, "0" * 64)
    path = tmp_path / "registers.pth"
    torch.save(random_dinov2() | {"register_tokens": torch.zeros(1, 4, 128)}, path)
    with pytest.raises(DarkroomError, match=r"registers\.pth does not hold the weights of DINOv2 ViT-L/14.*register"):
        open_dinov2(path, None)
    torch.save({"weight": torch.zeros(2)}, path)
    with pytest.raises(DarkroomError, match="does not hold the weights of DINOv2"):
        open_dinov2(path, None)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(DarkroomError) as error:
        open_dinov2(Path(NO_FILE), None, download=False)
    place = tmp_path / "hub" / "checkpoints" / "dinov2_vitl14_pretrain.pth"
    for words in (str(place), PUBLISHED["l"].url, PUBLISHED["l"].sha256, "`reference_stats.dinov2.weights`"):
        assert words in str(error.value)
