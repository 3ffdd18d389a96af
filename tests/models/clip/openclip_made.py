"""Small CLIPs of open_clip in folders, as open_clip publishes them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

VISION = {"image_size": 16, "layers": 2, "width": 32, "patch_size": 8, "head_width": 16}
TEXT = {"context_length": 12, "vocab_size": 49408, "width": 24, "heads": 2, "layers": 2}
MODELS: dict[str, dict[str, Any]] = {
    "clip": {"embed_dim": 8, "vision_cfg": VISION, "text_cfg": TEXT},
    "quick": {"embed_dim": 8, "vision_cfg": VISION, "text_cfg": TEXT, "quick_gelu": True, "custom_text": True},
    "resnet": {"embed_dim": 8, "vision_cfg": {"image_size": 32, "layers": [1] * 4, "width": 8}, "text_cfg": TEXT},
    "coca": {
        "embed_dim": 8,
        "vision_cfg": {**VISION, "attentional_pool": True, "attn_pooler_heads": 2, "output_tokens": True},
        "text_cfg": {**TEXT, "embed_cls": True, "output_tokens": True},
        "multimodal_cfg": {**TEXT, "attn_pooler_heads": 2},
        "custom_text": True,
    },
}
IMAGES = {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4], "interpolation": "bilinear", "resize_mode": "shortest"}


def published(folder: Path, kind: str = "clip", images: dict[str, Any] | None = None, seed: int = 0) -> Path:
    """Write a folder as open_clip publishes them, of random weights."""
    package = pytest.importorskip("open_clip", reason="an optional extra: pip install -e '.[open_clip]'")
    model = MODELS[kind]
    torch.manual_seed(seed)
    made = {"coca": package.CoCa, "quick": package.CustomTextCLIP}.get(kind, package.CLIP)
    network = made(**{name: value for name, value in model.items() if name != "custom_text"})
    folder.mkdir(parents=True)
    config = {"model_cfg": model, "preprocess_cfg": {**IMAGES, **(images or {})}}
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    state = {name: value.contiguous() for name, value in network.state_dict().items()}
    save_file(state, folder / "open_clip_model.safetensors")
    return folder
