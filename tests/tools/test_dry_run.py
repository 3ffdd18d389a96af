"""What a training would do is told without doing it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from darkroom.artifacts.manifest import write_manifest
from darkroom.check.check import read_params
from darkroom.cli import main
from darkroom.tools.dry_run import dry_run
from darkroom.training.state import fingerprint, identity, key, stable_folder

ROOT = Path(__file__).parents[2]


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """The parameters and the DAG of this clone, without any input of a training."""
    for name in ("params.yaml", "dvc.yaml"):
        shutil.copy2(ROOT / name, tmp_path / name)
    (tmp_path / "src").symlink_to(ROOT / "src")
    for name in ("data/none", "docs/dag.svg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    return tmp_path


def edit(change):
    values = yaml.safe_load(Path("params.yaml").read_text())
    change(values)
    Path("params.yaml").write_text(yaml.safe_dump(values, sort_keys=False))


def files(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if "src" not in path.parts}


def told(stage):
    lines = [line[2:].split(": ", 1) for line in dry_run(stage).splitlines() if line.startswith("# ")]
    return dict(lines)


@pytest.mark.usefixtures("clone")
def test_the_whole_text_is_the_stage_s_parameters_as_yaml():
    given = read_params()
    shown = yaml.safe_load(dry_run("train_generator"))
    others = {"pretrained": None, "none": None}  # kinds that are not chosen
    assert shown == {"run": given["run"], "train_generator": {**given["train_generator"], **others}}
    assert set(yaml.safe_load(dry_run("train_tokenizer"))["train_tokenizer"]) >= {"kind", "training", "kl"}


@pytest.mark.usefixtures("clone")
def test_updates_shares_and_rates_follow_from_the_parameters():
    def change(values):
        values["train_generator"]["training"] |= {"processes": 2, "images": 6400, "warmup": 640, "schedule": "cosine"}
        values["run"] |= {"micro_batch": 10, "device": "cpu"}

    edit(change)
    metadata = told("train_generator")
    assert metadata["updates"] == "100 of 64 images"
    assert metadata["processes"] == "2, each with 32 images of an update, in 4 passes of at most 10"
    assert metadata["learning rate"].startswith("0 at image 0, 0.002 after the warm-up at image 640, ")
    assert metadata["device"] == "cpu" and metadata["writes"] == "curves/generator, models/generator"
    assert metadata["reads"] == "data/catalog, data/latents, models/tokenizer"


@pytest.mark.usefixtures("clone")
@pytest.mark.parametrize(("adaptive", "passes"), [("none", "passes of at most 10"), ("taming", "in one pass")])
def test_a_loss_of_the_whole_batch_leaves_it_whole(adaptive, passes):
    def change(values):
        values["train_tokenizer"]["kl"]["adversarial"] = {"weight": 0.5, "start": 0, "adaptive": adaptive}
        values["run"]["micro_batch"] = 10

    edit(change)
    assert told("train_tokenizer")["processes"].endswith(passes)


def test_a_longer_training_would_begin_where_the_decay_of_a_shorter_one_began(clone):
    for name in ("data/catalog", "data/shards"):
        (clone / name).mkdir()
    edit(lambda values: values["train_extractor"]["training"].update({"schedule": "wsd"}))
    assert told("train_extractor")["begins"] == "at image 0, there is no checkpoint"
    folder = stable_folder("train_extractor", None, identity("train_extractor"))
    for images in (6400, 12_800, 12_864):  # it decays after 12,800
        (folder / f"images-{images:012d}").mkdir(parents=True)
    edit(lambda values: values["train_extractor"]["training"].update({"final_rate": 0.1}))
    begins = "at image 12,800, where the decay of a shorter training began, of the same code"
    assert told("train_extractor")["begins"] == begins


def test_where_it_would_begin_is_told_and_nothing_is_touched(clone):
    assert "not there yet: data/catalog, data/shards" in told("train_extractor")["state"]
    for name in ("data/catalog", "data/shards"):
        (clone / name).mkdir()
    state = Path(f".darkroom/state/train_extractor-{key(identity('train_extractor'))}")
    before = files(clone)
    metadata = told("train_extractor")
    assert metadata["state"] == str(state) and metadata["begins"] == "at image 0, there is no checkpoint"
    assert files(clone) == before
    for images in (640, 12800):
        folder = state / f"images-{images:012d}"
        folder.mkdir(parents=True)
        write_manifest(folder, "checkpoint", images=images, files={}, facts={"code": fingerprint("train_extractor")})
    assert told("train_extractor")["begins"] == "at image 12,800 of 16,000, from images-000000012800"
    written = (folder / "manifest.json").read_text()
    write_manifest(folder, "checkpoint", images=12800, files={}, facts={"code": {"darkroom.training.data": {"": "0"}}})
    assert told("train_extractor")["begins"] == "at image 640 of 16,000, from images-000000000640"
    edit(lambda values: values["run"].update(changed_code="resume"))
    assert told("train_extractor")["begins"].endswith("from images-000000012800, written by other code")
    (folder / "manifest.json").write_text(written)
    (state / "finished.json").touch()
    assert told("train_extractor")["begins"].startswith("at its end, images-000000012800")


@pytest.mark.usefixtures("clone")
def test_what_is_not_valid_is_refused_as_everywhere(capsys):
    edit(lambda values: values["train_generator"]["training"].update(batch=7))
    assert main(["train_generator", "--dry-run"]) == 1
    assert "images (38400) must be a multiple of batch (7)" in capsys.readouterr().err


def test_torch_stays_unloaded():
    code = (
        "import sys; from darkroom.cli import main; main(['train_generator', '--dry-run']); "
        "assert 'torch' not in sys.modules"
    )
    environment = os.environ | {"PYTHONPATH": "src"}
    done = subprocess.run(
        [sys.executable, "-c", code, "train_generator", "--dry-run"],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "# updates: " in done.stdout, done.stderr
