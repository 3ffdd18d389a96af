"""A DiT of augmented latents, through the stages: trained, resumed, sampled, and begun with weights of another."""

import shutil
from pathlib import Path

import pytest
import torch

from darkroom.errors import DarkroomError
from darkroom.models.generators.dit.network import DiT
from stages.tiny_generator import enter_copy, sample, train, train_until, write_clone

OFTEN = {"augment": 0.5, "evaluate": {"every": 0, "extractor": "data/none", "reference": "data/none"}}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return write_clone(tmp_path_factory.mktemp("clone"))


@pytest.fixture
def clone(whole, tmp_path, monkeypatch):
    enter_copy(whole, tmp_path / "clone", monkeypatch)


def test_a_training_resumes_bit_for_bit_and_samples(clone, monkeypatch):
    train("class", **OFTEN)
    weights = Path("models/generator/model.safetensors").read_bytes()
    before = DiT.from_pretrained(Path("models/generator")).state_dict()
    assert before["augment"].any(dim=0).all()  # each number of c is read
    shutil.rmtree("state")
    train_until(40, "class", monkeypatch, **OFTEN)
    train("class", **OFTEN)
    assert Path("models/generator/model.safetensors").read_bytes() == weights
    images, _ = sample("class", images=5)
    assert len(images) == 5
    shutil.rmtree("state")
    train("class", {"micro_batch": 2}, **OFTEN)
    after = DiT.from_pretrained(Path("models/generator")).state_dict()
    assert all(torch.allclose(value, after[name], atol=2e-3) for name, value in before.items())


@pytest.mark.parametrize(("first", "then"), [(0.0, 0.5), (0.5, 0.0)])
def test_weights_of_a_training_without_it_begin_one_with_it_and_the_reverse(clone, first, then):
    train("class", **OFTEN | {"augment": first})
    Path("models/generator").rename("others")
    shutil.rmtree("state")
    begun = {"folder": "others"}
    with pytest.raises(DarkroomError, match="dit/augment"):
        train("class", **OFTEN | {"augment": then, "init": begun})
    train("class", **OFTEN | {"augment": then, "init": {**begun, "skip": ["dit/augment"]}})
    assert DiT.from_pretrained(Path("models/generator")).config.augmented == (8 if then else 0)
