"""The loop: exact after a stop, the same for every way to run it, and true to its formulas."""

import json
import os
import signal

import pytest
import torch

from darkroom.training.evaluation import validate
from darkroom.training.loop import remaining_batches, train
from darkroom.training.recipe import Phase
from darkroom.training.start import open_training
from helpers import run, training
from training.toy import Numbers, Toy, curves, places, weights


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("undisturbed")


@pytest.fixture(scope="module")
def undisturbed(folder):
    """Weights and curves of a training that ran in `folder`."""
    trainer = train(Toy(), training(), run(), places(folder))
    return weights(trainer), curves(folder / "curves")


@pytest.mark.parametrize(
    ("images", "number"), [(16, signal.SIGTERM), (24, signal.SIGTERM), (64, signal.SIGTERM), (24, signal.SIGINT)]
)
def test_a_stopped_training_continues_bit_for_bit(tmp_path, undisturbed, images, number):
    """Weights, averages and every logged number equal those of an undisturbed training."""
    hook = lambda seen: os.kill(os.getpid(), number) if seen == images else None  # noqa: E731
    with pytest.raises(SystemExit) as stop:
        train(Toy(hook), training(), run(), places(tmp_path))
    assert stop.value.code == 128 + number
    resumed = train(Toy(), training(), run(), places(tmp_path))
    assert weights(resumed) == undisturbed[0]
    assert curves(tmp_path / "curves") == undisturbed[1]


def test_a_crash_costs_the_time_since_the_last_checkpoint_and_no_bit(tmp_path, undisturbed):
    def hook(seen):
        if seen == 48:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        train(Toy(hook), training(), run(max_lost_seconds=1e-9), places(tmp_path))
    recipe = Toy()
    resumed = train(recipe, training(), run(), places(tmp_path))
    assert recipe.seen == list(range(40, 64))
    assert weights(resumed) == undisturbed[0]
    assert curves(tmp_path / "curves") == undisturbed[1]


def test_a_finished_training_resumes_to_its_end_without_an_update(tmp_path, undisturbed):
    train(Toy(), training(), run(), places(tmp_path))
    recipe = Toy()
    again = train(recipe, training(), run(), places(tmp_path))
    assert recipe.seen == [] and weights(again) == undisturbed[0]
    assert curves(tmp_path / "curves") == undisturbed[1]


def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_taken(tmp_path, undisturbed, capsys):
    train(Toy(), training(), run(max_lost_seconds=1e-9), places(tmp_path))
    newest = sorted((tmp_path / "state").glob("images-*"))[-1]
    path = newest / "modules.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    recipe = Toy()
    resumed = train(recipe, training(), run(), places(tmp_path))
    assert recipe.seen == list(range(56, 64)) and weights(resumed) == undisturbed[0]
    assert "damaged and was renamed" in capsys.readouterr().out
    assert (tmp_path / "state" / f"damaged-{newest.name}").is_dir()


def test_two_checkpoints_are_kept_and_stumps_are_swept(tmp_path):
    stump = tmp_path / "state" / ".images-000000000008.tmp-1"
    stump.mkdir(parents=True)
    # Of a process that was killed while it tried whether it may write.
    stump.with_name(".images-000000000016.tmp-1").touch()
    train(Toy(), training(), run(max_lost_seconds=1e-9), places(tmp_path))
    assert [p.name for p in sorted((tmp_path / "state").iterdir())] == ["images-000000000056", "images-000000000064"]


@pytest.mark.parametrize("how", [{"workers": 2, "keep": 5}, {"grid_every": 8, "trackers": ["tensorboard"]}])
def test_how_it_runs_changes_no_bit(how, tmp_path, undisturbed):
    trainer = train(Toy(), training(), run(**how), places(tmp_path))
    assert weights(trainer) == undisturbed[0] and curves(tmp_path / "curves") == undisturbed[1]


def test_a_micro_batch_gives_the_same_gradients_to_rounding(tmp_path):
    """Without dropout, whose draws follow from the shape of a pass: 1e-6, float32 sums in another order."""
    results = []
    for size in (None, 3):
        recipe = Toy()
        recipe.modules["first"][1].p = 0.0
        trainer = train(recipe, training(clip_norm=None), run(micro_batch=size), places(tmp_path / str(size)))
        results.append(torch.cat([p.detach().flatten() for p in trainer.recipe.modules["first"].parameters()]))
    assert torch.allclose(*results, atol=1e-6) and not torch.equal(*results)


def test_a_seed_decides_everything(tmp_path, undisturbed):
    assert weights(train(Toy(), training(seed=1), run(), places(tmp_path))) != undisturbed[0]


def test_every_epoch_shows_every_image_once(tmp_path):
    recipe = Toy()
    rows = []
    fetch = recipe.train.__getitems__
    recipe.train.__class__ = type("Spy", (Numbers,), {"__getitems__": lambda _, r, p: (rows.extend(r), fetch(r, p))[1]})
    train(recipe, training(images=40, batch=8), run(), places(tmp_path))
    assert sorted(rows[:20]) == sorted(rows[20:40]) == list(range(20)) and rows[:20] != rows[20:40]


def test_validation_uses_the_averages_without_dropout_and_disturbs_nothing(tmp_path):
    trainer = open_training(Toy(), training(), run(), places(tmp_path))
    before = weights(trainer)
    with torch.no_grad():
        for value in trainer.ema.state["first"].values():
            value.zero_()
    with torch.no_grad():
        trainer.ema.state["first"]["3.bias"].fill_(3.0)
    assert validate(trainer) == {"val/loss": pytest.approx(9.0)}
    assert trainer.recipe.modules["first"].training
    own = {key: value for key, value in weights(trainer).items() if not key.startswith("ema")}
    assert own.items() <= before.items()


def test_the_average_is_the_formula(tmp_path):
    """w_ema <- d w_ema + (1 - d) w with d = min(decay, (1 + k) / (10 + k)), in float64 beside it."""
    trainer = open_training(Toy(), training(ema_decay=0.3), run(), places(tmp_path))
    weight = trainer.recipe.modules["second"].weight
    average = weight.detach().double().clone()
    for update, batch in enumerate(remaining_batches(trainer)):
        trainer.step(batch)
        decay = min(0.3, (1 + update) / (10 + update))
        average = decay * average + (1 - decay) * weight.detach().double()
    assert torch.allclose(trainer.ema.state["second"]["weight"].double(), average, atol=1e-6)


def test_clipping_bounds_the_gradient_and_the_norm_before_it_is_logged(tmp_path):
    trainer = train(Toy(), training(clip_norm=1e-3), run(), places(tmp_path))
    gradients = [parameter.grad for parameter in trainer.recipe.modules["second"].parameters()]
    assert torch.stack([gradient.norm() for gradient in gradients]).norm() == pytest.approx(1e-3, rel=1e-3)
    assert trainer.records[-1]["train/grad_norm/second"] > 1


class Meeting(Toy):
    """The first phase's loss reaches into the second's module, as a generator's reaches into its discriminator."""

    def one(self, batch):
        return {"loss": self.modules["second"](batch.data["x"] + self.modules["first"](batch.data["x"])).mean()}


def test_a_phase_leaves_no_gradient_to_the_next(tmp_path):
    """The second module's gradient is that of its own loss alone."""
    trainer = open_training(Meeting(), training(clip_norm=None), run(), places(tmp_path))
    batch = next(iter(remaining_batches(trainer)))
    loss = trainer.recipe.two(batch)["loss"]
    alone = torch.autograd.grad(loss, list(trainer.recipe.modules["second"].parameters()))
    trainer.step(batch)
    for gradient, parameter in zip(alone, trainer.recipe.modules["second"].parameters(), strict=True):
        assert torch.allclose(gradient, parameter.grad)


class Later(Toy):
    """The second phase has settings of its own, begins at the 32nd image, and counts its updates in a buffer."""

    def __init__(self, hook=None):
        super().__init__(hook)
        self.modules["second"].register_buffer("updates", torch.zeros(()))
        self.batches = []
        later = Phase("second", self.two, lr_scale=0.5, betas=(0.5, 0.8), clip_norm=1e-3, start=32, after=self.count)
        self.phases = (self.phases[0], later)

    def count(self, batch):
        self.batches.append(batch.positions.tolist())
        self.modules["second"].updates += 1


def test_a_phase_has_its_own_start_rate_betas_and_clipping(tmp_path):
    recipe = Later()
    initial = {name: value.clone() for name, value in recipe.modules["second"].state_dict().items()}
    trainer = open_training(recipe, training(schedule="constant", warmup=0, final_rate=0.0), run(), places(tmp_path))
    for batch in remaining_batches(trainer):
        before = trainer.images
        trainer.step(batch)
        if before < 32:
            assert all(torch.equal(recipe.modules["second"].state_dict()[name], initial[name]) for name in initial)
    assert recipe.batches == [list(range(at, at + 8)) for at in range(32, 64, 8)]
    assert recipe.modules["second"].updates == 4
    first, second = (trainer.optimizers[name].param_groups[0] for name in ("first", "second"))
    assert second["lr"] == first["lr"] / 2 and second["betas"] == (0.5, 0.8) and first["betas"] != (0.5, 0.8)
    gradients = [parameter.grad for parameter in recipe.modules["second"].parameters()]
    assert torch.stack([gradient.norm() for gradient in gradients]).norm() == pytest.approx(1e-3, rel=1e-3)


@pytest.fixture(scope="module")
def later(tmp_path_factory):
    folder = tmp_path_factory.mktemp("later")
    return weights(train(Later(), training(), run(), places(folder))), curves(folder / "curves")


@pytest.mark.parametrize("images", [32, 40])
def test_a_training_stopped_around_the_start_of_a_phase_continues_bit_for_bit(tmp_path, later, images):
    hook = lambda seen: os.kill(os.getpid(), signal.SIGTERM) if seen == images else None  # noqa: E731
    with pytest.raises(SystemExit):
        train(Later(hook), training(), run(), places(tmp_path))
    assert weights(train(Later(), training(), run(), places(tmp_path))) == later[0]
    assert curves(tmp_path / "curves") == later[1]


def test_validation_comes_when_it_is_due_whatever_is_logged(tmp_path):
    trainer = train(Toy(), training(log_every=24, validate_every=16), run(), places(tmp_path))
    assert [r["images"] for r in trainer.records if "val/loss" in r] == [16, 32, 48, 64]
    assert [r["images"] for r in trainer.records] == [16, 24, 32, 48, 64]


def test_a_picture_that_fails_loses_no_training(tmp_path, capsys, undisturbed):
    recipe = Toy()
    recipe.preview = lambda: torch.zeros(0).reshape(0, -1)
    trainer = train(recipe, training(), run(grid_every=32), places(tmp_path))
    assert "cannot write the grid at image 32" in capsys.readouterr().out and weights(trainer) == undisturbed[0]
    assert all(module.training for module in recipe.modules.values())


@pytest.mark.usefixtures("undisturbed")
def test_curves_and_journal_hold_what_they_promise(folder):
    lines = (folder / "curves" / "plots" / "metrics" / "train" / "loss.tsv").read_text().splitlines()
    assert lines[0] == "step\tloss" and [line.split("\t")[0] for line in lines[1:]] == ["16", "32", "48", "64"]
    journal = [json.loads(line) for line in (folder / "logs" / "train.jsonl").read_text().splitlines()]
    assert journal[-1]["images"] == 64 and "images_per_second" in journal[-1] and "val/loss" in journal[-1]


@pytest.mark.parametrize(("share", "left"), [(True, 1), (False, 4)])
def test_threads_are_halved_beside_other_work_only_on_request(tmp_path, monkeypatch, capsys, share, left):
    monkeypatch.setattr("darkroom.training.journal.slowdown", lambda before, now: 2.0)
    threads = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        train(Toy(), training(log_every=8, share_cores=share), run(), places(tmp_path))
        assert torch.get_num_threads() == left
    finally:
        torch.set_num_threads(threads)
    assert capsys.readouterr().out.count("(`share_cores`)") == 2 * share
