"""The Python interface gives the bits of the stages and commands, from any folder."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from torch.utils.data import DataLoader

import darkroom
from dag.sandbox import Sandbox, copy_source
from darkroom.cli import main
from darkroom.errors import DarkroomError


def pixels(path: Path) -> torch.Tensor:
    return torch.from_numpy(np.asarray(Image.open(path)).transpose(2, 0, 1).copy())


def test_samples_are_those_of_the_command(fresh: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh.darkroom("sample", "--labels", "3,5", "--images", "2", "--seed", "4", "--out", "out")
    folder = fresh.root / "models/generator"
    generator = darkroom.load(folder)
    drawn = generator.sample(labels=[3, "5"], n=2, seed=4)
    files = sorted((fresh.root / "out").glob("4-[0-9]*.png"), key=lambda path: int(path.stem[2:]))
    assert [each.tolist() for each in drawn] == [pixels(file).tolist() for file in files] and len(files) == 4
    assert generator.condition == "class" and generator.classes[3] == "3"
    settings = yaml.safe_load((fresh.root / "params.yaml").read_text())["sample_generator"]["dit"]
    sampling = {key: settings[key] for key in ("steps", "guidance", "solver") if key in settings}
    alone = tmp_path / "alone"  # a copy of the models, without their clone
    for name in ("generator", "tokenizer"):
        shutil.copytree(fresh.root / "models" / name, alone / "models" / name)
    assert darkroom.load(alone / "models/generator").sample(labels=[3], n=2, seed=4, **sampling).equal(drawn[:2])
    options = [word for key, value in sampling.items() for word in (f"--{key}", str(value))]
    monkeypatch.chdir(alone)
    assert main(["sample", "--labels", "3", "--images", "2", "--seed", "4", "--out", "out", *options]) == 0
    assert pixels(alone / "out/4-0.png").equal(drawn[0])
    monkeypatch.chdir(fresh.root / "models/generator")  # a relative path is that of the caller
    assert generator.sample(labels=[3], n=2, seed=4, weights="model.safetensors").equal(drawn[:2])
    for wrong in ({}, {"labels": [3], "texts": ["x"]}, {"labels": [3], "n": 0}):
        with pytest.raises(DarkroomError, match="give either"):
            generator.sample(**wrong)
    for label in ("x", 10, -1):
        with pytest.raises(DarkroomError, match="is no class"):
            generator.sample(labels=[label])


def test_a_number_is_the_number_of_a_class_and_a_text_its_name(committed: Sandbox) -> None:
    generator = darkroom.load(committed.root / "models/generator")
    generator.classes = ["1", "2", "0", *generator.classes[3:]]
    assert [generator._name(label) for label in (0, "0", 2)] == ["1", "0", "0"]


def test_texts_go_through_prior_and_decoder(fresh: Sandbox) -> None:
    decoder = darkroom.load(fresh.root / "models/decoder")
    images = decoder.sample(["seven", "two"], n=2, seed=1)
    assert images.dtype == torch.uint8 and images.shape[0] == 4
    assert decoder.sample(["two"], n=1, seed=1)[0].equal(images[2])
    shutil.rmtree(fresh.root / "models/prior")
    with pytest.raises(DarkroomError, match="models/prior is missing"):
        decoder.sample(["seven"])


def test_latents_are_those_of_the_stage(committed: Sandbox) -> None:
    tokenizer = darkroom.load(committed.root / "models/tokenizer")
    images, latents = (make("test", committed.root) for make in (darkroom.images, darkroom.latents))
    batch = next(iter(DataLoader(images, len(images))))
    stored = next(iter(DataLoader(latents, len(latents))))["mean"]
    means = tokenizer.encode(batch["image"])
    assert means.shape[1:] == tokenizer.latent_shape and tokenizer.codebook_size is None
    assert means.equal(stored)
    assert tokenizer.decode(means).shape == batch["image"].shape
    assert batch["label"].tolist() == images.labels and all(batch["caption"])
    with pytest.raises(DarkroomError, match="continuous"):
        tokenizer.encode_codes(batch["image"])


def test_scores_are_those_of_the_command(fresh: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.stack([each["image"] for each in darkroom.images("train", fresh.root)])
    for name, half in (("one", images[:40]), ("two", images[40:])):
        np.savez(fresh.root / f"{name}.npz", arr_0=half.permute(0, 2, 3, 1).numpy())
    monkeypatch.chdir(fresh.root)
    assert main(["score", "one.npz", "--against", "two.npz", "--extractor", "models/extractor", "--threads", "1"]) == 0
    stored = json.loads((fresh.root / "score/scores.json").read_text())["scores"]
    extractor = fresh.root / "models/extractor"
    assert darkroom.score(images[:40], images[40:], extractor=extractor, threads=1) == stored
    for wrong in (images.float(), images.permute(0, 2, 3, 1), images[:0]):
        with pytest.raises(DarkroomError, match="uint8"):
            darkroom.score(wrong, images)


def test_two_revisions_are_a_table(fresh: Sandbox) -> None:
    path = fresh.root / "metrics/generator.json"
    scores = json.loads(path.read_text())
    path.write_text(json.dumps(scores | {"fd": scores["fd"] + 100}))
    row = darkroom.compare("HEAD", "workspace", fresh.root).set_index(["file", "score"]).loc["generator", "fd"]
    assert (row.old, row.new, row.difference) == (scores["fd"], scores["fd"] + 100, pytest.approx(100))
    assert row.verdict.startswith("worse") and row.old_se == scores["fd_se"]
    with pytest.raises(DarkroomError, match="not a folder"):
        darkroom.compare(root=fresh.root / "none")


def test_what_is_no_model_is_refused(fresh: Sandbox) -> None:
    for folder in ("models/extractor", "data/shards"):
        with pytest.raises(DarkroomError, match="load takes the folder models/generator, "):
            darkroom.load(fresh.root / folder)
    shutil.rmtree(fresh.root / "models/tokenizer")
    with pytest.raises(DarkroomError, match="run `dvc repro train_tokenizer`"):
        darkroom.load(fresh.root / "models/tokenizer")


def test_the_wheel_scores_and_samples_without_a_checkout(committed: Sandbox, tmp_path: Path) -> None:
    source, target, empty = (tmp_path / name for name in ("source", "target", "empty"))
    copy_source(source, lambda name: name.startswith(("src/", "pyproject.toml", "README.md", "LICENSE")))
    build = ("--no-deps", "--no-build-isolation", "--quiet", "--disable-pip-version-check")
    subprocess.run([sys.executable, "-m", "pip", "install", *build, "--target", target, source], check=True)
    empty.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(target)}
    images, extractor = (str(committed.root / name) for name in ("samples/generator", "models/extractor"))
    command = ["score", images, "--against", images, "--extractor", extractor, "--threads", "1"]
    program = f"""
import darkroom
from darkroom.cli import main
assert main({command}) == 0
print(darkroom.load({str(committed.root / "models/generator")!r}).sample([3], n=1).shape)
"""
    words = [sys.executable, "-c", program]
    run = subprocess.run(words, cwd=empty, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "torch.Size([1, 3, " in run.stdout and (empty / "score/scores.json").is_file()
    refused = [sys.executable, "-m", "darkroom", "train_generator"]
    stage = subprocess.run(refused, cwd=empty, env=environment, capture_output=True, text=True)
    assert stage.returncode == 1 and "run this in the root of your clone" in stage.stderr
