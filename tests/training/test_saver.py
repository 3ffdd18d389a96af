"""The writer of checkpoints: beside the training, as often as it is cheap, never later than asked."""

import hashlib
import threading
import time

import pytest
import torch
from safetensors.torch import load_file

from darkroom.errors import DarkroomError
from darkroom.training import checkpoint, saver
from darkroom.training.loop import train
from darkroom.training.saver import Saver
from helpers import run, training
from training.toy import Toy, places, weights

MB = 10**6


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass when the test says so."""

    class Clock:
        now = 1000.0

    monkeypatch.setattr(saver.time, "monotonic", lambda: Clock.now)
    return Clock


def groups(value: float = 1.0):
    return {"modules": {"net/weight": torch.full((1000,), value)}}


@pytest.mark.parametrize(
    ("size", "max_lost_seconds", "seconds"),
    [
        (20 * MB, 300, 15.0),  # cheap: as often as every 15 seconds
        (2000 * MB, 300, 100.0),  # a second of work: every 100
        (20_000 * MB, 300, 290.0),  # ten seconds: 1000 would be cheap, but 300 are at risk with the writing
        (20_000 * MB, 12, 6.0),  # never less than half of what may be lost
        (20 * MB, 1e-9, 5e-10),
    ],
)
def test_the_first_cadence_follows_from_the_size(tmp_path, size, max_lost_seconds, seconds):
    assert Saver(tmp_path, run(max_lost_seconds=max_lost_seconds), size).interval == pytest.approx(seconds, rel=0.05)


def test_the_cadence_follows_what_saving_really_costs(tmp_path, clock, monkeypatch):
    """A checkpoint that takes the training's thread 0.4 s and the writer's 0.2 s of CPU comes every 60 s."""
    monkeypatch.setattr(saver.time, "thread_time", iter([0.0, 0.2]).__next__)

    def slow(tensors, before):
        clock.now += 0.4
        return tensors

    monkeypatch.setattr(checkpoint, "copied", slow)
    made = Saver(tmp_path, run(max_lost_seconds=300), 20 * MB)
    made.save(8, groups(), {}, wait=False)
    made.finish()
    assert made.interval == pytest.approx(60.0)
    assert not made.due()
    clock.now += 59.0
    assert not made.due()
    clock.now += 1.1
    assert made.due()


@pytest.fixture
def held(monkeypatch):
    """Writing a checkpoint waits until the test lets it go on."""
    gate = threading.Event()
    write = checkpoint.save
    monkeypatch.setattr(checkpoint, "save", lambda *arguments: (gate.wait(10), write(*arguments))[1])
    return gate


def test_the_training_does_not_wait_for_the_disk_and_what_is_written_is_of_its_moment(tmp_path, held):
    made, tensors = Saver(tmp_path, run(max_lost_seconds=300), 1000), groups(1.0)
    made.save(8, tensors, {"records": []}, wait=False)
    tensors["modules"]["net/weight"].fill_(2.0)
    assert checkpoint.newest(tmp_path) is None
    held.set()
    made.finish()
    images, found, metadata = checkpoint.read(checkpoint.newest(tmp_path))
    assert images == 8 and metadata == {"records": []}
    assert torch.equal(found["modules"]["net/weight"], torch.ones(1000))


def test_memory_of_the_copy_before_is_used_again_where_it_fits(tmp_path):
    made = Saver(tmp_path, run(max_lost_seconds=300), 1000)
    for images, value in ((8, 1.0), (16, 2.0)):
        tensors = groups(value) | {"ema": {"new": torch.full((images,), value)}}
        made.save(images, tensors, {}, wait=False)
        made.finish()
        place = made._copies["modules"]["net/weight"].data_ptr()
        found = checkpoint.read(tmp_path / f"images-{images:012d}")[1]
        assert torch.equal(found["modules"]["net/weight"], torch.full((1000,), value))
        assert torch.equal(found["ema"]["new"], torch.full((images,), value))
    made.save(24, groups(3.0), {}, wait=False)
    made.finish()
    assert made._copies["modules"]["net/weight"].data_ptr() == place
    assert (checkpoint.read(tmp_path / "images-000000000024")[1]["modules"]["net/weight"] == 3.0).all()


def test_a_busy_writer_puts_the_next_one_off_while_little_is_at_risk(tmp_path, held, clock):
    made = Saver(tmp_path, run(max_lost_seconds=300), 1000)
    made.save(8, groups(), {}, wait=False)
    clock.now += 200
    assert not made.due(), "the writer is busy"
    clock.now += 100
    assert made.due(), "as much is at risk as may be"
    held.set()
    made.finish()


def test_memory_too_short_for_a_copy_means_writing_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(saver.guards, "free_memory", lambda: 100)
    copied = []
    monkeypatch.setattr(checkpoint, "copied", copied.append)
    made = Saver(tmp_path, run(max_lost_seconds=300), 1000)
    made.save(8, groups(), {}, wait=False)
    assert checkpoint.newest(tmp_path) is not None and copied == []


def test_memory_that_is_held_for_copies_counts_as_free_for_the_next(tmp_path, monkeypatch):
    """4,000 bytes: twice that is asked of what is free, of which the copy before holds half."""
    made = Saver(tmp_path, run(max_lost_seconds=300), 1000)
    monkeypatch.setattr(saver.guards, "free_memory", lambda: 9000)
    made.save(8, groups(1.0), {}, wait=False)
    before = made._copies
    monkeypatch.setattr(saver.guards, "free_memory", lambda: 5000)
    made.save(16, groups(2.0), {}, wait=False)
    made.finish()
    assert made._copies is not before, "written at once, without a copy"


def test_what_goes_wrong_in_the_thread_is_raised_in_the_training(tmp_path, monkeypatch):
    def broken(*_):
        raise ValueError("a defect")

    monkeypatch.setattr(checkpoint, "save", broken)
    made = Saver(tmp_path, run(max_lost_seconds=300), 1000)
    made.save(8, groups(), {}, wait=False)
    with pytest.raises(ValueError, match="a defect"):
        made.finish()


def test_a_copy_elsewhere_that_fails_is_told_and_stops_nothing(tmp_path, capsys):
    def unreachable(folder):
        raise DarkroomError(f"{folder.name}: no network")

    made = Saver(tmp_path, run(max_lost_seconds=300), 1000, after=unreachable)
    made.save(8, groups(), {}, wait=True)
    made.close()
    said = capsys.readouterr().out
    assert "images-000000000008 was written here, but could not be copied: images-000000000008: no network" in said
    assert checkpoint.newest(tmp_path) is not None


def test_a_slow_disk_changes_no_bit(tmp_path, monkeypatch):
    """Each file takes longer than an update: checkpoints are fewer, and of the same training."""
    whole = train(Toy(), training(), run(), places(tmp_path / "whole"))
    write = checkpoint.write_tensors
    monkeypatch.setattr(checkpoint, "write_tensors", lambda *arguments: (time.sleep(0.02), write(*arguments))[1])
    trainer = train(Toy(), training(), run(max_lost_seconds=0.01, keep=9), places(tmp_path))
    assert weights(trainer) == weights(whole)
    assert checkpoint.newest(tmp_path / "state").name == "images-000000000064"


def test_what_a_checkpoint_says_is_of_its_moment(tmp_path):
    trainer = train(Toy(), training(), run(), places(tmp_path))
    metadata = trainer.state_dict()[1]
    trainer.records[0]["train/loss"] = 0.0
    trainer.records.append({})
    assert len(metadata["records"]) == 4 and metadata["records"][0]["train/loss"] != 0.0


@pytest.mark.parametrize(("old", "new"), [('"images": 64', '"images": 65'), ('"seal"', '"sebl"')])
def test_a_flipped_letter_in_a_manifest_sets_the_checkpoint_aside(tmp_path, old, new, capsys):
    for images in (56, 64):
        manifest = checkpoint.save(tmp_path, images, groups(), {}, 2) / "manifest.json"
    assert old in manifest.read_text()
    manifest.write_text(manifest.read_text().replace(old, new))
    assert checkpoint.newest(tmp_path).name == "images-000000000056"
    assert "images-000000000064 is damaged and was renamed" in capsys.readouterr().out


def test_a_slow_place_elsewhere_keeps_nobody_waiting_and_gets_the_last_one(tmp_path):
    """While one is being copied others are written here and not copied; the one that is copied is not removed."""
    gate, alone, copied = threading.Event(), threading.Lock(), []

    def slow(folder):
        assert alone.acquire(blocking=False), "one at a time"
        gate.wait(10)
        alone.release()
        copied.append((folder.name, (folder / "manifest.json").exists()))

    made = Saver(tmp_path, run(max_lost_seconds=300), 1000, after=slow)
    for images in (8, 16, 24, 32):
        made.save(images, groups(), {}, wait=True)
    kept = [folder.name for folder in checkpoint.folders(tmp_path)]
    assert copied == [] and kept == [f"images-{images:012d}" for images in (8, 24, 32)]
    threading.Timer(0.2, gate.set).start()
    made.close()
    assert copied == [("images-000000000008", True), ("images-000000000032", True)]
    made.save(40, groups(), {}, wait=True)
    assert [folder.name for folder in checkpoint.folders(tmp_path)] == [f"images-{images:012d}" for images in (32, 40)]


def test_a_file_of_tensors_is_what_the_library_reads(tmp_path):
    """Scalars, nothing, columns, and two names for one weight, which the library's own writer refuses."""
    for dtype in checkpoint._DTYPES:
        values = (torch.arange(12).reshape(3, 4) % 2).to(dtype)
        one, none = values[0, 1].clone(), values[:0]
        tensors = {"whole": values, "columns": values.T, "one": one, "none": none, "again": values}
        sha256 = checkpoint.write_tensors(tmp_path / "x.safetensors", tensors)
        assert sha256 == hashlib.sha256((tmp_path / "x.safetensors").read_bytes()).hexdigest()
        found = load_file(tmp_path / "x.safetensors")
        assert found.keys() == tensors.keys()
        for name, value in tensors.items():
            assert torch.equal(found[name], value) and found[name].dtype == dtype, (name, dtype)
