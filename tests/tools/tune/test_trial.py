"""What a training with other settings is found to do: the evaluator's, on the clone's own data."""

import shutil
from contextlib import chdir

import pytest
import torch

from darkroom.models.evaluators.extractor import Classifier
from darkroom.params.stage import read_yaml
from darkroom.tools.editing import put
from darkroom.tools.plan.miniature import Miniature, count_images, scratch
from darkroom.tools.plan.rehearsal import rehearse
from darkroom.tools.tune import search, trial
from darkroom.tools.tune.search import EXACT, KEYS, key_of
from darkroom.training.recipe import Phase
from helpers import run, training
from tools.plan.conftest import SOURCE, enter_clone, write_clone
from training.toy import Toy, places

STAGE = "train_extractor"


@pytest.fixture(scope="module")
def miniature(tmp_path_factory):
    """A clone, a scratch folder of it in which its images were ingested, and its parts; tests get a copy."""
    clone, kept = tmp_path_factory.mktemp("clone"), tmp_path_factory.mktemp("kept") / "scratch"
    write_clone(clone)
    with pytest.MonkeyPatch.context() as patch:
        enter_clone(clone, patch)
        with scratch() as folder:
            parts = count_images({"ingest@first", "ingest@second"})
            for name in ("ingest@first", "ingest@second", "catalog"):
                with chdir(clone):
                    assert rehearse(name, Miniature(folder, parts)).source == "measured"
            shutil.copytree(folder, kept, symlinks=True)
    return clone, kept, parts


@pytest.fixture
def attempts(miniature, tmp_path, monkeypatch):
    """Returns what tries changes of the evaluator, in this process."""
    clone, kept, parts = miniature
    enter_clone(clone, monkeypatch)
    monkeypatch.setattr(trial, "BUDGET", 0.0)
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    on = Miniature(shutil.copytree(kept, tmp_path / "scratch", symlinks=True), parts)

    def attempt(changes):
        with chdir(clone):
            return trial.attempt(STAGE, on, changes, tmp_path / "exact.pt")

    return attempt


def test_time_memory_loss_and_gradient_are_found(attempts):
    said = attempts(None)
    assert said.now.keys() == {*KEYS, "processes"} and said.now["precision"] == "fp32" and not said.updates
    exact = attempts(EXACT)
    assert not exact.why and exact.updates > 0 and exact.batch > 1 and exact.seconds > 0
    assert exact.loss == exact.gradient == exact.departure == 0.0 and exact.noise > 0.01
    assert exact.convolutions and not exact.gpu
    again = attempts({})
    assert again.loss == again.gradient == 0.0  # the same weights, batches and dropout
    bf16 = attempts({"precision": "bf16"})
    assert bf16.now["precision"] == "bf16" and bf16.gradient > 1e-4
    assert bf16.departure > 0 and not bf16.departs


def test_a_setting_in_which_the_network_computes_something_else_is_refused(attempts, monkeypatch):
    """As one whose half precision loses what matters: here the logits come out too large under autocast."""
    logits = Classifier.logits

    def lossy(self, features):
        return logits(self, features) * (1.5 if torch.is_autocast_enabled("cpu") else 1.0)

    monkeypatch.setattr(Classifier, "logits", lossy)
    monkeypatch.setattr(search, "_options", lambda *_: [("precision", ("fp32", "bf16"))])
    found = {each.label: each for each in search.search(attempts, 1)}
    assert found["precision: bf16"].verdict == "departs" and found["as it is"].verdict == ""


def test_what_cannot_be_trained_is_a_reason(attempts, monkeypatch):
    monkeypatch.setattr("darkroom.stages.train_extractor.run", lambda params, train: None)
    assert "nothing is trained" in attempts({}).why


class Pair(Toy):
    """Two phases: the loss of the second is a hundred times that of the first, and depends on a switch."""

    shift = 0.0

    def __init__(self):
        super().__init__()
        self.phases = (
            self.phases[0],
            Phase("second", lambda batch: {"loss": 100 + self.shift + self.two(batch)["loss"]}),
        )


def test_a_loss_departs_in_the_phase_in_which_it_does(tmp_path):
    """Neither the other phase's level nor its sign hides it."""

    def departure(shift, factor=1.0):
        recipe = Pair()
        recipe.shift = shift
        for module in recipe.modules.values():
            for parameter in module.parameters():
                parameter.register_hook(lambda gradient: gradient * factor)
        found = trial.Trial(tmp_path / "exact.pt")
        with pytest.raises(trial.Enough):
            found.train(recipe, training(), run(), places(tmp_path / str(shift)))
        return found.result

    assert departure(0.0).departure == 0.0
    assert departure(0.5).departs and departure(0.5).loss == pytest.approx(0.005, rel=0.1)
    larger = departure(0.0, factor=1.25)
    assert larger.loss == 0.0 and larger.gradient == pytest.approx(0.25)
    assert larger.departure == pytest.approx(0.25 * (larger.noise**-2 - 1 / trial._PROBES) ** 0.5, rel=1e-3)


def test_what_all_batches_are_off_counts_as_it_is_and_the_rest_as_a_smaller_batch():
    generator = torch.Generator().manual_seed(0)
    batches, numbers = 4, 100_000
    mean, noise, rest = (torch.randn(count, numbers, generator=generator) for count in (1, batches, batches))
    exact = mean + 2 * noise
    relative, departure, spread = trial.gradients_apart(exact + 0.6 * rest, exact)
    assert spread == pytest.approx(2 / (1 + 2**2 / batches) ** 0.5, rel=0.02)  # the mean of four keeps a quarter
    assert relative == pytest.approx(0.6 / 5**0.5, rel=0.02) and departure == pytest.approx(0.3**2, rel=0.05)
    assert trial.gradients_apart(exact + 0.6 * rest[:1], exact)[1] == pytest.approx(0.3, rel=0.05)
    assert trial.gradients_apart(exact, exact)[1] == 0.0
    assert trial.gradients_apart(torch.full_like(exact, float("nan")), exact)[1] == float("inf")


def test_the_keys_that_decide_are_those_that_are_set():
    params = {
        "train_tokenizer": {"kind": "dvae", "training": {"images": 64}, "dvae": {"training": {"precision": "fp32"}}},
        "train_decoder": {"training": {"precision": "fp32"}, "unets": {"base": {"training": None}}},
    }
    assert key_of("train_tokenizer", "precision", params) == "train_tokenizer.dvae.training.precision"
    assert key_of("train_tokenizer", "threads", params) == "train_tokenizer.training.threads"
    assert key_of("train_decoder@base", "precision", params) == "train_decoder.unets.base.training.precision"
    assert key_of("train_decoder@base", "threads", params) == "train_decoder.training.threads"  # of the whole stage
    assert key_of("train_clip", "compile", params) == "train_clip.training.compile"
    put(params, key_of("train_decoder@base", "compile", params), True)
    assert params["train_decoder"]["unets"]["base"]["training"] == {"compile": True}
    committed = read_yaml(SOURCE / "params.yaml")
    assert key_of("train_decoder@base", "threads", committed) == "train_decoder.training.threads"
