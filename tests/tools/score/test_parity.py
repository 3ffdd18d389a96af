"""`darkroom score` beside torch-fidelity, from the same PNG files, with random weights in the published format."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from darkroom.cli import main
from models.evaluators.weights import blank


def write_weights(path: Path) -> None:
    """Random weights whose features vary: those of an untrained network are all but constant."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        state = blank().state_dict()
        for name, value in state.items():
            if name.endswith("conv.weight"):
                torch.nn.init.kaiming_normal_(value)
            elif name.endswith("bn.bias"):
                torch.nn.init.normal_(value, std=0.3)
    torch.save(state, path)


def write_images(folder: Path, seed: int, size: int) -> None:
    """Smooth pictures of random colours."""
    folder.mkdir()
    rng = np.random.default_rng(seed)
    for number in range(24):
        coarse = Image.fromarray(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8))
        coarse.resize((size, size), Image.Resampling.BICUBIC).save(folder / f"{number:02}.png")


@pytest.mark.slow
def test_agrees_with_torch_fidelity_from_png_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_fidelity import calculate_metrics

    monkeypatch.chdir(tmp_path)
    write_weights(Path("weights.pth"))
    write_images(Path("made"), 0, 40)
    write_images(Path("real"), 1, 64)
    options = ["--weights", "weights.pth", "--convention", "torch-fidelity", "--threads", "2"]
    assert main(["score", "made", "--against", "real", *options]) == 0
    ours = json.loads(Path("score/scores.json").read_text())["scores"]
    theirs = calculate_metrics(
        input1="made",
        input2="real",
        feature_extractor="inception-v3-compat",
        feature_extractor_weights_path="weights.pth",
        cuda=False,
        isc=True,
        fid=True,
        prc=True,
        verbose=False,
        cache=False,
    )
    for name, of_theirs in (
        ("fid", "frechet_inception_distance"),
        ("inception_score_splits", "inception_score_mean"),
        ("precision", "precision"),
        ("recall", "recall"),
    ):
        assert ours[name] == pytest.approx(theirs[of_theirs], rel=1e-4), name
