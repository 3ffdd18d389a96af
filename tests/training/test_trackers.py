"""Trackers: every record and grid, once, also after a restart; nothing leaves the machine, and nothing changes."""

import json
import os
import signal
import struct
from pathlib import Path

import numpy as np
import pytest
from accelerate import Accelerator
from PIL import Image

from darkroom.errors import DarkroomError
from darkroom.training.loop import train
from darkroom.training.trackers import log_images, log_record, start_trackers, stop_trackers
from helpers import run, training
from tiny import Line, places

WORK = "line-0123"


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "x")
    monkeypatch.delenv("WANDB_ERROR_REPORTING")  # and so restored after the test
    monkeypatch.delenv("WANDB_MODE", raising=False)


def stopped(folder, trackers, losses):
    """Train in `folder` until so many losses are computed, and stop as an engine does."""
    hook = lambda seen: os.kill(os.getpid(), signal.SIGTERM) if seen == losses else None  # noqa: E731
    with pytest.raises(SystemExit):
        train(Line(hook), training(), run(trackers=trackers), places(folder))


def events(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder / "logs" / "trackers" / WORK), size_guidance={"histograms": 0})
    found.Reload()
    return found


def test_tensorboard_gets_every_record_once_also_after_a_restart(tmp_path):
    """The first start dies after image 64 with a checkpoint of image 40: what it logged beyond is not shown twice."""
    whole = train(Line(), training(), run(trackers=["tensorboard"]), places(tmp_path))
    for folder in sorted((tmp_path / "state" / WORK).glob("images-*")):
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
    stopped(tmp_path / "x", [], 5)
    (tmp_path / "x" / "state" / WORK).rename(tmp_path / "state" / "new")
    (tmp_path / "state" / WORK).rmdir()
    (tmp_path / "state" / "new").rename(tmp_path / "state" / WORK)
    train(Line(), training(), run(trackers=["tensorboard"]), places(tmp_path))
    told = [(record["images"], pytest.approx(record["train/loss"], rel=1e-6)) for record in whole.records]
    assert [(event.step, event.value) for event in events(tmp_path).Scalars("train/loss")] == told


def test_a_new_training_under_the_same_name_does_not_show_the_old_one(tmp_path):
    for value in (1.0, 2.0):
        accelerator = Accelerator()
        start_trackers(accelerator, ["tensorboard"], tmp_path / "logs" / "trackers", "train_line", WORK, 0)
        log_record(accelerator, {"images": int(16 / value), "loss": value})
        stop_trackers(accelerator)
    assert [(event.step, event.value) for event in events(tmp_path).Scalars("loss")] == [(8, 2.0)]


def test_tensorboard_shows_pictures(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (6, 4, 1), dtype=np.uint8)
    Image.fromarray(pixels.squeeze()).save(tmp_path / "grid.png")
    accelerator = Accelerator()
    start_trackers(accelerator, ["tensorboard"], tmp_path / "logs" / "trackers", "train_line", WORK, 0)
    log_images(accelerator, "grid/ema", tmp_path / "grid.png", 32)
    stop_trackers(accelerator)
    (event,) = events(tmp_path).Images("grid/ema")
    (tmp_path / "shown.png").write_bytes(event.encoded_image_string)
    shown = np.asarray(Image.open(tmp_path / "shown.png").convert("RGB"))
    assert event.step == 32 and np.array_equal(shown, np.broadcast_to(pixels, (6, 4, 3)))


class Counted(Line):
    """Its evaluation counts 1,000 values."""

    @property
    def evaluations(self):
        return [(32, self.evaluate)]

    def evaluate(self, rank, count, gather):
        counts = np.zeros(1000, dtype=np.int64)
        counts[[2, 3, 999]] = 5, 7, 1
        self.histograms = {"codes": counts}
        return {"usage": 0.003}


def test_what_an_evaluation_counts_is_a_histogram_in_the_logs_and_in_tensorboard(tmp_path):
    """Beside the grids."""
    train(Counted(), training(), run(trackers=["tensorboard"], grid_every=32), places(tmp_path))
    folder = tmp_path / "logs" / "train_line" / "histograms"
    assert sorted(path.name for path in folder.iterdir()) == ["000000032-codes.tsv", "000000064-codes.tsv"]
    lines = (folder / "000000064-codes.tsv").read_text().splitlines()
    assert lines[0] == "value\tcount" and lines[3:5] == ["2\t5", "3\t7"] and len(lines) == 1001
    told = events(tmp_path)
    assert [event.step for event in told.Images(told.Tags()["images"][0])] == [32, 64]
    found = told.Histograms("eval/codes")
    assert [event.step for event in found] == [32, 64]
    shown = found[-1].histogram_value
    assert (shown.min, shown.max, shown.num, shown.sum) == (2, 999, 13, 2 * 5 + 3 * 7 + 999)
    held = {limit: count for limit, count in zip(shown.bucket_limit, shown.bucket, strict=True) if count}
    assert held == {4: 12, 1000: 1}


def test_tensorboard_has_the_parameters_of_the_stage(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    where = places(tmp_path)
    where.state.mkdir(parents=True)
    values = {"training": {"batch": 8, "betas": [0.9, 0.99], "tf32": False}, "kind": "line", "init": {"url": None}}
    (where.state / "parameters.json").write_text(json.dumps(values))
    train(Line(), training(), run(trackers=["tensorboard"]), where)
    found = EventAccumulator(str(tmp_path / "logs" / "trackers" / WORK / "hyperparameters"))
    found.Reload()
    plugins = found.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    session = HParamsPluginData.FromString(plugins).session_start_info.hparams
    shown = {name: getattr(value, value.WhichOneof("kind")) for name, value in session.items()}
    assert shown == {
        "training.batch": 8,
        "training.betas": "[0.9, 0.99]",
        "training.tf32": False,
        "kind": "line",
        "init.url": "null",
    }


def test_without_trackers_nothing_is_written_or_read(tmp_path):
    accelerator = Accelerator()
    start_trackers(accelerator, [], tmp_path / "trackers", "train_line", WORK, 0)
    log_record(accelerator, {"images": 1})
    log_images(accelerator, "grid", Path("does not exist"), 1)
    stop_trackers(accelerator)
    assert not (tmp_path / "trackers").exists()


def test_a_tracker_that_fails_is_told_and_left_out(tmp_path, capsys):
    def fail(*_, **__):
        raise OSError("No space left on device")

    accelerator = Accelerator()
    start_trackers(accelerator, ["tensorboard"], tmp_path, "train_line", WORK, 0)
    accelerator.trackers[0].log = fail
    for images in (16, 32):
        log_record(accelerator, {"images": images})
    assert capsys.readouterr().out == (
        "tensorboard failed, so the training goes on without it: No space left on device\n"
    )


def test_a_tracker_that_is_not_installed_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DarkroomError, match="names wandb: install it"):
        train(Line(), training(), run(trackers=["wandb"]), places(tmp_path))


# ----------------------------------------------------------------------------------------------------------------
# Weights & Biases, where it is installed


def records(folder) -> list:
    """Return what an offline run of Weights & Biases holds: LevelDB's log format, with protocol buffers inside."""
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = folder.glob("*.wandb")
    data, at, record, found = path.read_bytes(), 7, b"", []
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:  # no header fits into the rest of the block
            at += 32768 - at % 32768
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            found.append(Record.FromString(record))
            record = b""
    return found


def history(folder) -> list[dict]:
    """Return the records of a training by name, as an offline run holds them."""
    logged = [each.history.item for each in records(folder) if each.WhichOneof("record_type") == "history"]
    return [{"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items} for items in logged]


def runs(folder):
    return sorted((folder / "logs" / "trackers" / "wandb").glob("offline-run-*"))


def test_wandb_gets_every_record_and_grid_offline_and_changes_nothing(tmp_path):
    pytest.importorskip("wandb", reason="wandb is an optional extra: pip install -e '.[wandb]'")
    plain = train(Line(), training(), run(), places(tmp_path / "plain"))
    trained = train(Line(), training(), run(trackers=["wandb"], grid_every=32), places(tmp_path))
    assert os.environ["WANDB_ERROR_REPORTING"] == "false"
    (folder,) = runs(tmp_path)
    assert folder.name.endswith(f"-{WORK}")
    rows = history(folder)
    assert [row["_step"] for row in rows] == [16, 32, 48, 64] and [
        sum("grid" in name for name in row) > 0 for row in rows
    ] == [False, True] * 2
    assert [{name: row[name] for name in each} for row, each in zip(rows, trained.records, strict=True)] == (
        trained.records
    )
    assert len(list(folder.rglob("*.png"))) == 4
    for (name, one), two in zip(plain.recipe.modules["line"].state_dict().items(), weights(trained), strict=True):
        assert one.equal(two), name


def test_wandb_gets_histograms(tmp_path):
    pytest.importorskip("wandb", reason="wandb is an optional extra: pip install -e '.[wandb]'")
    train(Counted(), training(), run(trackers=["wandb"]), places(tmp_path))
    (folder,) = runs(tmp_path)
    found = [row for row in history(folder) if "eval/codes" in row or "eval/codes/values" in row]
    assert [row["_step"] for row in found] == [32, 64]
    shown = found[-1].get("eval/codes") or {name: found[-1][f"eval/codes/{name}"] for name in ("values", "bins")}
    held = {limit: count for limit, count in zip(shown["bins"][1:], shown["values"], strict=True) if count}
    assert held == {4: 12, 1000: 1}


def weights(trainer):
    return trainer.recipe.modules["line"].state_dict().values()


def test_a_restart_with_wandb_is_one_more_folder_of_the_same_run(tmp_path):
    pytest.importorskip("wandb", reason="wandb is an optional extra: pip install -e '.[wandb]'")
    stopped(tmp_path, ["wandb"], 3)
    train(Line(), training(), run(trackers=["wandb"]), places(tmp_path))
    told = [[row["_step"] for row in history(folder)] for folder in runs(tmp_path)]
    assert told == [[16], [32, 48, 64]] and all(f"-{WORK}" in folder.name for folder in runs(tmp_path))


def test_wandb_has_the_parameters_and_where_it_is_asked_for_the_model(tmp_path):
    pytest.importorskip("wandb", reason="wandb is an optional extra: pip install -e '.[wandb]'")
    where = places(tmp_path)
    where.state.mkdir(parents=True)
    (where.state / "parameters.json").write_text(json.dumps({"training": {"batch": 8, "betas": [0.9, 0.99]}}))
    train(Line(), training(), run(trackers=["wandb"], track_model=True), where)
    (folder,) = runs(tmp_path)
    found = records(folder)
    configured = {
        "/".join(item.nested_key) or item.key: json.loads(item.value_json)
        for each in found
        if each.WhichOneof("record_type") == "config"
        for item in each.config.update
    }
    assert configured["training.batch"] == 8 and configured["training.betas"] == "[0.9, 0.99]"
    (artifact,) = [
        each.request.log_artifact.artifact
        for each in found
        if each.WhichOneof("record_type") == "request" and each.request.WhichOneof("request_type") == "log_artifact"
    ] or [each.artifact for each in found if each.WhichOneof("record_type") == "artifact"]
    assert (artifact.name, artifact.type) == ("train_line-model", "model")
    assert [entry.path for entry in artifact.manifest.contents] == ["ema.safetensors"]
