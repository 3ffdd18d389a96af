"""Trainings of small tokenizers with a codebook, as one of several processes."""

import json
from pathlib import Path

import torch

from darkroom.models.tokenizers.recipe import TokenizerRecipe
from darkroom.models.tokenizers.vq_ar.recipe import VQARRecipe
from darkroom.training.loop import seeded, train
from helpers import run, training
from models.tokenizers.making_vq_ar import SHAPE, settings
from models.tokenizers.small_vqgan import Pictures, section
from models.tokenizers.small_vqgan import recipe as vqgan
from training.toy import places

# `vq` begins by k-means at the first update and replaces dead codes at the others.
KINDS = {"vq": {"vq": {"dead_below": 4.0}}, "lfq": {"quantiser": "lfq"}, "vq_ar": {"dead_below": 4.0}}


def recipe(kind: str) -> TokenizerRecipe:
    """Return the recipe of a kind with the weights of seed 3."""
    if kind != "vq_ar":
        return vqgan(section(**KINDS[kind]))
    with seeded(3):
        return VQARRecipe(settings(**KINDS[kind]), training(), SHAPE, Pictures(), Pictures())


def member(folder: Path, _: int, count: int, kind: str) -> None:
    """Train as one of `count` processes; as the first, which alone returns, write records and what was learned."""
    torch.backends.mkldnn.enabled = False  # it may round otherwise for another number of images
    changes = training(processes=count, images=32, learning_rate=1e-3, log_every=8)
    made = recipe(kind)
    made.val = Pictures(changes.batch)  # one batch, which the first process takes: the other validates nothing
    trainer = train(made, changes, run(), places(folder))
    torch.save(trainer.modules["tokenizer"].state_dict(), folder / "weights.pt")
    (folder / "records.json").write_text(json.dumps(trainer.records))
