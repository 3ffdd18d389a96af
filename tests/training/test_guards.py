"""What stops a training with a sentence, and what it leaves untouched."""

import errno
import shutil
from pathlib import Path

import pytest
import torch

from darkroom.errors import DarkroomError
from darkroom.rng import order
from darkroom.training import checkpoint, guards
from darkroom.training.loop import remaining_batches, train
from darkroom.training.precision import NotFiniteError
from darkroom.training.start import open_training
from helpers import run, training
from training.toy import Toy, places, weights


class Poisoned(Toy):
    """One image of the training makes the loss of the second phase infinite."""

    poison = 29  # a position in the sequence

    def two(self, batch):
        loss = super().two(batch)["loss"]
        return {"loss": loss / (0.0 if self.poison in batch.positions else 1.0)}


def test_a_loss_that_is_not_finite_stops_with_step_keys_checkpoint_and_advice(tmp_path):
    with pytest.raises(DarkroomError) as error:
        train(Poisoned(), training(), run(max_lost_seconds=1e-9), places(tmp_path))
    said = str(error.value)
    assert "the loss is not finite in the optimizer step of images 24 to 32 (step 4;" in said
    rows = order(0, 20, range(24, 32)).tolist()
    assert ", ".join(f"key{row}" for row in rows) in said
    assert str(tmp_path / "state" / "images-000000000024") in said and "learning_rate" in said
    assert checkpoint.folders(tmp_path / "state")[-1].name == "images-000000000024"


def test_a_gpu_answers_one_update_later_and_nothing_is_kept_of_what_came_after(tmp_path):
    """The same on a CPU that is asked as a GPU is: the update is named that went wrong, not the one that noticed."""
    trainer = open_training(Poisoned(), training(), run(), places(tmp_path))
    trainer.finite._deferred = True
    batches = remaining_batches(trainer)
    for _ in range(4):
        trainer.step(next(batches))
    assert trainer.images == 32
    with pytest.raises(NotFiniteError, match="images 24 to 32"):
        trainer.state_dict()
    trainer = open_training(Poisoned(), training(), run(), places(tmp_path))
    trainer.finite._deferred = True
    batches = remaining_batches(trainer)
    for _ in range(4):
        trainer.step(next(batches))
    with pytest.raises(NotFiniteError, match="images 24 to 32"):
        trainer.step(next(batches))


def test_a_gradient_that_is_not_finite_names_its_module(tmp_path):
    recipe = Toy()
    recipe.modules["second"].weight.register_hook(lambda gradient: gradient * float("nan"))
    with pytest.raises(
        DarkroomError, match="the gradient of second is not finite in the optimizer step of images 0 to 8"
    ):
        train(recipe, training(), run(), places(tmp_path))


def test_the_step_is_not_taken(tmp_path):
    trainer = open_training(Poisoned(), training(), run(), places(tmp_path))
    batches = remaining_batches(trainer)
    for _ in range(3):
        trainer.step(next(batches))
    second = trainer.modules["second"].weight.clone()
    with pytest.raises(DarkroomError):
        trainer.step(next(batches))
    assert torch.equal(trainer.modules["second"].weight, second) and trainer.images == 24


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes")],
)
def test_out_of_memory_says_the_pass_the_estimate_and_what_to_lower(tmp_path, error):
    def hook(seen):
        if seen == 16:
            raise error

    with pytest.raises(DarkroomError) as told:
        train(Toy(hook), training(), run(), places(tmp_path))
    said = str(told.value)
    assert "in a pass of 8 images" in said and "`run.micro_batch` to 4" in said and "activation_checkpointing" in said
    assert "take 0.00 GB" in said and "continues from the last checkpoint" in said


def test_the_state_is_counted(tmp_path):
    trainer = open_training(Toy(), training(), run(), places(tmp_path))
    parameters = (2 * 8 + 8) + 2 * 8 + (8 + 1) + (2 + 1)
    counters = 8
    assert trainer.state_bytes == 5 * 4 * parameters + 4 * counters


def test_other_errors_stay_what_they_are(tmp_path):
    def hook(seen):
        raise RuntimeError("shapes differ")

    with pytest.raises(RuntimeError, match="shapes differ"):
        train(Toy(hook), training(), run(), places(tmp_path))


def usage(free: int):
    return lambda path: shutil._ntuple_diskusage(10**12, 10**12 - free, free)


def test_a_disk_that_is_too_small_is_refused_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", usage(1000))
    recipe = Toy()
    with pytest.raises(OSError, match="a training that keeps 2 checkpoints needs") as error:
        train(recipe, training(), run(), places(tmp_path))
    assert error.value.errno == errno.ENOSPC and recipe.seen == []


def test_a_disk_that_fills_up_costs_no_training_and_no_checkpoint(tmp_path, monkeypatch, capsys):
    """The training goes on without checkpoints, says so, and saves again when there is room."""

    def hook(seen):
        free = 0 if 24 <= seen < 48 else 10**12
        monkeypatch.setattr(shutil, "disk_usage", usage(free))

    trainer = train(Toy(hook), training(), run(max_lost_seconds=1e-9, keep=9), places(tmp_path))
    said = capsys.readouterr().out
    assert "cannot write the checkpoint of image 24: the disk is full" in said and "Free some space" in said
    assert [int(folder.name[7:]) for folder in checkpoint.folders(tmp_path / "state")] == [8, 16, 48, 56, 64]
    assert weights(trainer) == weights(train(Toy(), training(), run(), places(tmp_path / "whole")))


def test_a_disk_that_is_full_at_the_end_is_an_error_and_keeps_what_was_there(tmp_path, monkeypatch):
    def hook(seen):
        monkeypatch.setattr(shutil, "disk_usage", usage(0 if seen >= 40 else 10**12))

    with pytest.raises(OSError, match="a checkpoint needs"):
        train(Toy(hook), training(), run(max_lost_seconds=1e-9), places(tmp_path))
    assert checkpoint.newest(tmp_path / "state") == Path(tmp_path / "state" / "images-000000000032")


def test_a_full_disk_is_known_by_its_number():
    assert guards.is_disk_full(OSError(errno.ENOSPC, "full")) and guards.is_disk_full(OSError(errno.EDQUOT, "quota"))
    assert not guards.is_disk_full(OSError(errno.EACCES, "no")) and not guards.is_disk_full(ValueError())
