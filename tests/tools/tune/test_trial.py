"""What a training with other settings is found to do: the evaluator's, on the clone's own data."""

from contextlib import chdir

import pytest
import torch

from darkroom.models.evaluators.extractor.network import Classifier
from darkroom.tools.plan.body import rehearse
from darkroom.tools.plan.miniature import Miniature, count_images, scratch
from darkroom.tools.tune import command, trial
from darkroom.tools.tune.search import EXACT, KEYS, search
from tools.plan.conftest import clone  # noqa: F401

STAGE = "train_extractor"


@pytest.fixture
def attempts(clone, tmp_path, monkeypatch):  # noqa: F811
    """Returns what tries changes of the evaluator, in this process."""
    monkeypatch.setattr(trial, "BUDGET", 0.0)
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    with scratch() as folder:
        on = Miniature(folder, count_images({"ingest@first", "ingest@second"}))
        for name in ("ingest@first", "ingest@second", "catalog"):
            with chdir(clone):
                assert rehearse(name, on).source == "measured"

        def attempt(changes):
            with chdir(clone):
                return trial.attempt(STAGE, on, changes, tmp_path / "exact.pt")

        yield attempt


def test_time_memory_loss_and_gradient_are_found(attempts):
    exact = attempts(EXACT)
    assert not exact.why and exact.updates > 0 and exact.batch > 1 and exact.seconds > 0
    assert exact.loss == exact.gradient == 0.0 and exact.loss_noise > 0 and exact.gradient_noise > 0.01
    assert exact.convolutions and exact.cuts and exact.now.keys() == set(KEYS)
    again = attempts({})
    assert again.loss == again.gradient == 0.0  # the same weights, batches and dropout
    halves = attempts({"micro_batch": exact.batch // 2})
    assert halves.loss < 1e-3 and 0 < halves.gradient < 1e-4  # but for what dropout draws of each: there is none here
    bf16 = attempts({"precision": "bf16"})
    assert 1e-4 < bf16.gradient < 0.1 * exact.gradient_noise and not bf16.departs(exact)


def test_a_setting_in_which_the_network_computes_something_else_is_refused(attempts, monkeypatch):
    """As one whose half precision loses what matters: here the logits come out too large under autocast."""
    logits = Classifier.logits

    def lossy(self, features):
        return logits(self, features) * (1.5 if torch.is_autocast_enabled("cpu") else 1.0)

    monkeypatch.setattr(Classifier, "logits", lossy)
    found = {each.label: each for each in search(attempts, 1, False) if each.label in ("bf16", "as it is")}
    assert found["bf16"].verdict == "departs" and found["as it is"].verdict == ""


def test_what_cannot_be_trained_is_a_reason(attempts, monkeypatch):
    assert "blocks to checkpoint" in attempts({"activation_checkpointing": True}).why
    monkeypatch.setattr("darkroom.stages.train_extractor.run", lambda params: None)
    assert "nothing is trained" in attempts({}).why


def test_the_keys_that_decide_are_those_that_are_set():
    params = {
        "train_tokenizer": {"kind": "dvae", "training": {"images": 64}, "dvae": {"training": {"precision": "fp32"}}},
        "train_decoder": {"training": {"threads": 1}, "unets": {"base": {"training": None}}},
    }
    assert command._place("train_tokenizer", "precision", params) == "train_tokenizer.dvae.training"
    assert command._place("train_tokenizer", "threads", params) == "train_tokenizer.training"
    assert command._place("train_decoder@base", "threads", params) == "train_decoder.training"
    assert command._place("train_decoder@base", "compile", params) == "train_decoder.unets.base.training"
    assert command._place("train_clip", "compile", params) == "train_clip.training"
