"""Generators of codes through the stages: trained, stopped, sampled, filled, scored; and what is refused before."""

import copy
import json
import os
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from safetensors.torch import load_file

from darkroom.artifacts.manifest import file_hashes
from darkroom.check.check import validated
from darkroom.cli import main
from darkroom.data.reader import ImageShards
from darkroom.errors import DarkroomError
from darkroom.models.generators import fits, sample_settings
from darkroom.models.generators.codes.recipe import CodeRecipe
from darkroom.params.section import validate
from darkroom.stages import sample_generator, score_generator
from darkroom.tools.sample import inpainting
from darkroom.tools.sample.hole import Hole
from darkroom.training.recipe import Batch
from forks import in_ranks
from helpers import DIGITS, run
from models.generators.tiny_codes import member, train
from stages.tiny_generator import INCEPTION, VALUES, enter_copy, write_clone

KINDS = ("autoregressive", "masked")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_clone(tmp_path_factory.mktemp("clone"), codes=True)


@pytest.fixture
def clone(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    enter_copy(whole, tmp_path / "clone", monkeypatch)
    return tmp_path / "clone"


def sample(kind: str, **section: Any) -> ImageShards:
    """Sample 12 images."""
    common = {"threads": 1, "images": 12, "batch": 4, "shard_size": 6}
    values = {"run": run().model_dump(), "sample_generator": {"common": common, kind: section}}
    sample_generator.run(validate(sample_settings.Params, values))
    return ImageShards.open_folder(Path("samples/generator"), "samples")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("condition", ["none", "image", "tokens", "caption"])
def test_each_condition_is_trained_and_sampled(
    clone: Path, kind: str, condition: str, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = train(kind, condition, {"order": "annealed"} if kind == "autoregressive" else {})
    assert trained["generator_kind"] == kind and trained.get("condition", "class") == condition
    curves = {path.stem for path in Path("curves/generator").rglob("val/*.tsv")}
    assert {"loss", "accuracy", "unigram", "uniform"} <= curves
    assert {"fd", "kid"} <= {path.stem for path in Path("curves/generator").rglob("eval/*.tsv")}
    images = sample(kind, guidance=1.0 if condition == "none" else 2.0)
    assert len(images) == 12 and Path("samples/generator/grid.png").is_file()
    if condition == "none":
        values = {**VALUES, "run": {"device": "cpu"}, "encode_latents": {"latents": "codes"}}
        values["train_tokenizer"] = {**VALUES["train_tokenizer"], "kind": "dvae"}
        values["train_generator"] = {
            "kind": kind,
            kind: {"model": {"condition": "none"}, "sampling": {"guidance": 1.0}},
        }
        values["sample_generator"] = {kind: {"guidance": 1.0}}
        Path("params.yaml").write_text(yaml.safe_dump(values))
        assert main(["sample", "--images", "2", "--out", "drawn"]) == 0
        assert len(list(Path("drawn").glob("1-[01].png"))) == 2
        assert main(["sample", "--labels", "0"]) == 1
        assert "has no labels: leave out --labels" in capsys.readouterr().err


@pytest.mark.parametrize("kind", KINDS)
def test_a_stop_in_training_and_in_sampling_costs_no_bit(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    results = []
    for name in ("straight", "stopped"):
        with monkeypatch.context() as patch:
            enter_copy(whole, tmp_path / name, patch)
            loss = {"order": "annealed"} if kind == "autoregressive" else {}
            if name == "stopped":
                _stopped(kind, loss, patch)
            train(kind, loss=loss)
            if name == "stopped":
                _sample_stopped(kind, patch)
            sample(kind, guidance=2.0)
            results.append((file_hashes(Path("models/generator")), file_hashes(Path("samples/generator"))))
    assert results[0] == results[1]


def test_two_processes_train_the_weights_of_one(whole: Path, tmp_path: Path) -> None:
    weights = []
    for count in (1, 2):
        shutil.copytree(whole, clone := tmp_path / str(count) / "clone")
        in_ranks(member, tmp_path / str(count), count, clone, "autoregressive", "caption")
        weights.append(load_file(clone / "models/generator/model.safetensors"))
    # A bias of keys has no effect, so its gradient is rounding, which Adam enlarges.
    alone, shared = ({name: each for name, each in of.items() if "qkv.bias" not in name} for of in weights)
    assert all(torch.allclose(one, shared[name], rtol=1e-3, atol=1e-5) for name, one in alone.items())


def _stopped(kind: str, section: dict[str, str], patch: pytest.MonkeyPatch) -> None:
    loss, seen = CodeRecipe.loss, []

    def watched(self: CodeRecipe, batch: Batch) -> Any:
        seen.extend(batch.positions.tolist())
        if len(seen) == 28:
            os.kill(os.getpid(), signal.SIGTERM)
        return loss(self, batch)

    with patch.context() as inner, pytest.raises(SystemExit):
        inner.setattr(CodeRecipe, "loss", watched)
        train(kind, loss=section)


def _sample_stopped(kind: str, patch: pytest.MonkeyPatch) -> None:
    from darkroom.models.generators.sampler import KeptBatches

    keep = KeptBatches.keep

    def killed(self: KeptBatches, start: int, images: Any) -> None:
        if start == 4:
            raise KeyboardInterrupt
        keep(self, start, images)

    with patch.context() as inner, pytest.raises(KeyboardInterrupt):
        inner.setattr(KeptBatches, "keep", killed)
        sample(kind, guidance=2.0)


def scored(images: int) -> dict[str, Any]:
    bits = {"generator": "models/generator", "latents": "data/latents", "split": "test", "images": images, "batch": 4}
    section = {**VALUES["score_generator"], "threads": 1, "batch": 8, "blocks": 2, "bits": bits}
    section["copies"] = {"images": 0}
    values = {"run": run().model_dump(), "reference_stats": {"inception": INCEPTION}, "score_generator": section}
    score_generator.run(validate(sample_settings.ScoreParams, values))
    return json.loads(Path("metrics/generator.json").read_text())


def test_bits_of_held_out_codes_are_scored(clone: Path) -> None:
    train("autoregressive")
    sample("autoregressive", guidance=2.0)
    scores = scored(8)
    assert 0 < scores["bits_per_code"] < 8 and scores["bits_per_code_se"] > 0
    assert scores["bits_per_dim"] == pytest.approx(scores["bits_per_code"] * 16 / (3 * 8 * 8))


@pytest.mark.parametrize(("size", "outside"), [(8, False), (8, True), (7, False)])
def test_codes_that_a_hole_touches_are_drawn(monkeypatch: pytest.MonkeyPatch, size: int, outside: bool) -> None:
    """Of 4 x 4 codes of 2 x 2 pixels, the last ones of an image of 7 pixels partly outside of it."""
    image = np.arange(3 * size * size, dtype=np.uint8).reshape(3, size, size)
    monkeypatch.setattr(inpainting, "read_image", lambda path, settings: image)
    encoded = torch.arange(16).reshape(1, 4, 4)
    sampler = SimpleNamespace(device=torch.device("cpu"), tokenizer=SimpleNamespace(encode_codes=lambda x: encoded))
    manifest = {"image": {"size": size, "channels": "RGB", "format": "png"}}
    monkeypatch.setattr(inpainting, "preparation", lambda spec: None)
    monkeypatch.setattr(inpainting.ImageSpec, "of", lambda manifest: SimpleNamespace(shape=(3, size, size)))
    filled = inpainting.filling(Hole(Path("x.png"), (2, 5, 4, 7), outside), sampler, manifest)
    inside = {2: range(1, 2), 3: range(1, 2)}  # rows 5 and 6 are codes 2 and 3, columns 2 and 3 are code 1
    drawn = {(row, column) for row, columns in inside.items() for column in columns}
    # Outside of it: all codes, since no code lies wholly inside: row 5 is half of code 2.
    expected = {(row, column) for row in range(4) for column in range(4)} if outside else drawn
    assert {tuple(each) for each in (sampler.known < 0).nonzero().tolist()} == expected
    assert torch.equal(sampler.known[sampler.known >= 0], encoded[0][sampler.known >= 0])
    pasted = filled(np.zeros((2, 3, size, size), np.uint8))
    where = np.full((size, size), outside)
    where[5:7, 2:4] = not outside
    assert (pasted[:, :, where] == 0).all() and (pasted[1][:, ~where] == image[:, ~where]).all()


def test_a_rectangle_is_filled_and_the_rest_stays(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = yaml.safe_load(DIGITS.read_text())
    values["run"] = {"device": "cpu"}
    values["train_tokenizer"] |= {"kind": "dvae"}
    values["encode_latents"] = {"latents": "codes"}
    values["train_generator"]["kind"] = "masked"
    Path("params.yaml").write_text(yaml.safe_dump(values))
    train("masked")
    given = np.full((8, 8, 3), (200, 40, 90), np.uint8)
    Image.fromarray(given).save("given.png")
    label = json.loads(Path("models/generator/manifest.json").read_text())["classes"][0]
    words = ["sample", "--labels", label, "--images", "2", "--inpaint", "given.png", "--out", "filled"]
    assert main([*words, "--box", "2,2,6,6"]) == 0
    filled = [np.asarray(Image.open(path).convert("RGB")) for path in sorted(Path("filled").glob("1-[1-9].png"))]
    assert len(filled) == 1  # after number 0
    for image in filled:
        hole = (image != given).any(axis=2)
        assert hole[2:6, 2:6].any() and hole.sum() == hole[2:6, 2:6].sum()
    for box in ("2,2,9,6", "5,5,5,6"):
        assert main([*words[:-1], "other", "--box", box]) == 1
        assert "is not a rectangle inside the image" in capsys.readouterr().err
    assert main(words) == 1 and "--inpaint needs --box" in capsys.readouterr().err
    assert main(["sample", "--labels", label, "--solver", "euler", "--out", "x.png"]) == 1
    assert "--solver: the generator masked has no such setting" in capsys.readouterr().err
    for folder in ("models/generator", "state"):
        shutil.rmtree(folder)
    train("autoregressive")
    values["train_generator"]["kind"] = "autoregressive"
    Path("params.yaml").write_text(yaml.safe_dump(values))
    assert main([*words[:-1], "third", "--box", "2,2,6,6"]) == 1
    assert "--inpaint needs a generator that predicts masked codes" in capsys.readouterr().err
    assert main(words := ["sample", "--labels", label, "--temperature", "0.5", "--top-k", "3", "--out", "y.png"]) == 0
    assert main(["export", "--format", "safetensors", "--out", "exported"]) == 0
    assert main([*words[:-1], "z.png", "--weights", "exported/model.safetensors"]) == 0
    assert Path("z.png").read_bytes() == Path("y.png").read_bytes()


CODES = {"train_tokenizer.kind": "dvae", "encode_latents.latents": "codes", "train_generator.kind": "masked"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            CODES | {"train_tokenizer.kind": "kl", "encode_latents.latents": "continuous"},
            "`train_generator.kind` is masked, and `train_tokenizer.kind` is kl, but this generator needs discrete "
            "latents: set the latter to dvae, vqgan or vq_ar.",
        ),
        (
            CODES | {"encode_latents.latents": "continuous"},
            "is continuous, but this generator needs discrete latents: set the latter to codes",
        ),
        (CODES | {"train_generator.masked.loss.label_dropout": 0.0}, "`sample_generator.masked.guidance` is 1.5, but"),
        (
            CODES | {"train_generator.masked.model.condition": "none"},
            "so there is no unconditional prediction for guidance: set the former to 1.0",
        ),
        (
            CODES | {f"score_generator.bits.{name}": f"data/{name}" for name in ("generator", "latents")},
            "which has no likelihood",
        ),
        (
            {
                "train_generator.dit.diffusion.objective": "mean_flow",
                "train_generator.dit.sampling.guidance": 1.0,
            },
            "`train_generator.dit.diffusion.objective` is mean_flow: guidance is part of this training",
        ),
        (
            {
                "train_generator.dit.diffusion.objective": "mean_flow",
                "train_generator.dit.sampling.guidance": 1.0,
                "sample_generator.dit.guidance": 1.0,
                "train_generator.training.processes": 2,
            },
            "which needs one process: set the former to 1",
        ),
        (
            {
                "train_generator.dit.diffusion.objective": "mean_flow",
                "train_generator.dit.sampling.guidance": 1.0,
                "sample_generator.dit.guidance": 1.0,
                "run.activation_checkpointing": True,
            },
            "`run.activation_checkpointing` is true, and `train_generator.dit.diffusion.objective` is mean_flow, whose",
        ),
        (
            CODES | {"train_generator.kind": "autoregressive", "sample_generator.common.compile": True},
            "inputs grow with each code, which cannot be compiled: set the former to false",
        ),
        (
            {
                "train_generator.dit.diffusion": {
                    "objective": "mean_flow",
                    "mean_flow": {"mix": 0.5},
                    "label_dropout": 0.0,
                },
                "train_generator.dit.sampling.guidance": 1.0,
                "sample_generator.dit.guidance": 1.0,
            },
            "diffusion.mean_flow.mix` is 0.5, and `train_generator.dit.diffusion.label_dropout` is",
        ),
    ],
)
def test_what_does_not_fit_is_refused_before_work(changes: dict[str, Any], message: str) -> None:
    values = copy.deepcopy(VALUES)
    for key, value in changes.items():
        section = values
        *path, name = key.split(".")
        for each in path:
            section[each] = section.get(each) or {}
            section = section[each]
        section[name] = value
    for name in KINDS:  # grids and evaluations are guided by default
        if changes.get("train_generator.masked.model.condition") == "none":
            values["train_generator"][name] = values["train_generator"].get(name) or {}
            values["train_generator"][name]["sampling"] = {"guidance": 1.0}
    with pytest.raises(DarkroomError) as refused:
        fits.fits(validated(values))
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"codes": 256, "side": 8, "causal": False}, None),
        (
            {"codes": 512, "side": 8, "causal": False},
            "over a codebook of 512 codes, but `train_tokenizer.dvae.codebook_size`",
        ),
        (
            {"codes": 256, "side": 16, "causal": False},
            "over 256 codes of an image, but images of 32 pixels have 64",
        ),
        ({"codes": 256, "side": 8, "causal": True}, "holds another network than the generator masked"),
        ({"width": 8}, "holds another network than the generator masked"),
        (None, "config.json is not JSON .*: choose other weights"),
    ],
)
def test_initial_weights_for_other_codes_are_refused(
    tmp_path: Path, config: dict[str, int] | None, message: str | None
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config) if config else "{")
    values = copy.deepcopy(VALUES)
    values["train_tokenizer"]["kind"], values["encode_latents"] = "dvae", {"latents": "codes"}
    values["train_tokenizer"]["dvae"] |= {"codebook_size": 256}
    values["train_generator"]["kind"] = "masked"
    values["train_generator"]["training"]["init"] = {"folder": str(tmp_path)}
    if message is None:
        fits.fits(validated(values))
    else:
        with pytest.raises(DarkroomError, match=message):
            fits.fits(validated(values))
