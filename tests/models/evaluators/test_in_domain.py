import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from darkroom.artifacts.manifest import ArtifactError
from darkroom.errors import DarkroomError
from darkroom.models.evaluators.extractor import Classifier


def images(n: int, channels: int = 3, side: int = 16) -> Tensor:
    generator = torch.Generator().manual_seed(n)
    return torch.randint(0, 256, (n, channels, side, side), dtype=torch.uint8, generator=generator)


@pytest.mark.parametrize(("channels", "widths"), [(1, [5]), (3, [6, 12]), (4, [8, 8, 20, 9])])
def test_shapes(channels: int, widths: list[int]) -> None:
    network = Classifier(channels, 7, widths, 11, 0.1)
    assert network(images(3, channels)).shape == (3, 7)
    features = network.features(images(3, channels))
    assert (features.shape, features.dtype) == ((3, 11), torch.float32)


def test_each_level_but_the_first_halves_the_resolution() -> None:
    network = Classifier(3, 2, [4, 4, 4], 5)
    assert network.levels(images(1, side=32).float()).shape[2:] == (8, 8)


def test_range_is_centred() -> None:
    network = Classifier(3, 2, [4], 5)
    seen: list[Tensor] = []
    network.levels.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    network.features(torch.tensor([0, 255], dtype=torch.uint8).reshape(2, 1, 1, 1).expand(2, 3, 12, 12))
    assert (seen[0][0].unique().tolist(), seen[0][1].unique().tolist()) == ([-1.0], [1.0])


def test_features_depend_on_no_neighbour_in_training_mode_too() -> None:
    network = Classifier(3, 2, [8, 8], 5, 0.5).train()
    batch = images(6)
    changed = batch.clone()
    changed[1:] = 0
    with torch.inference_mode():
        assert torch.equal(network.features(batch)[0], network.features(changed)[0])


def test_dropout_acts_on_logits_and_only_in_training() -> None:
    network = Classifier(3, 2, [8], 64, 0.5)
    with torch.inference_mode():
        assert not torch.equal(network.train()(images(2)), network(images(2)))
        assert torch.equal(network.eval()(images(2)), network(images(2)))


def test_round_trip(tmp_path: Path) -> None:
    network = Classifier(3, 7, [8, 16], 11, 0.2).eval()
    network.save_pretrained(tmp_path)
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert sorted(first) == ["config.json", "model.safetensors"]
    state = torch.random.get_rng_state()
    again = Classifier.from_pretrained(tmp_path)
    assert torch.equal(state, torch.random.get_rng_state())
    assert not again.training
    assert again.config == network.config
    with torch.inference_mode():
        assert torch.equal(again(images(4)), network(images(4)))
    again.save_pretrained(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == first


def test_damage_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="run train_extractor"):
        Classifier.from_pretrained(tmp_path)
    network = Classifier(3, 7, [8, 16], 11)
    network.save_pretrained(tmp_path)
    for config in ({**network.config, "features": 12}, {**network.config, "colour": 1}):
        (tmp_path / "config.json").write_text(json.dumps(config))
        with pytest.raises(ArtifactError, match="damaged"):
            Classifier.from_pretrained(tmp_path)
    network.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"not one")
    with pytest.raises(ArtifactError, match="damaged"):
        Classifier.from_pretrained(tmp_path)


@pytest.mark.parametrize("wrong", [images(2, 1), images(2).float(), images(2)[0]])
def test_other_images_are_refused(wrong: Tensor) -> None:
    with pytest.raises(DarkroomError, match=r"needs uint8 images of shape \(N, 3, H, W\)"):
        Classifier(3, 2, [4], 5).features(wrong)
