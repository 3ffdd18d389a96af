"""A stage sees its own sections, and every fault is one sentence that names the key."""

import copy
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from dvc.repo import Repo  # here, since its log handlers keep the stream that they find

from darkroom.check.check import check, schema
from darkroom.cli import main
from darkroom.dag.stages import STAGES
from darkroom.diffusion.settings import Diffusion
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS, Section, validate
from darkroom.params.stage import (
    DVC,
    OUTPUTS,
    address,
    items,
    lookup,
    paths,
    read_yaml,
    related,
    resolve,
    scope,
    stage_entry,
    stage_params,
    threads,
)
from helpers import DIGITS

ROOT = Path(__file__).parents[2]
MISSING = "taken out"
INGEST = yaml.safe_load(DIGITS.read_text())["ingest"]


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A folder with params.yaml, dvc.yaml and the code that dvc.yaml names."""
    for file in (DIGITS, ROOT / "dvc.yaml"):
        shutil.copy(file, tmp_path)
    (tmp_path / "src").symlink_to(ROOT / "src")
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "none").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(document, key, value):
    """Give a dotted key of the values of params.yaml another value, or take it out."""
    *parents, last = key.split(".")
    place = document
    for name in parents:
        place = place.setdefault(name, {})
    if value is MISSING:
        del place[last]
    else:
        place[last] = value


def change(key: str, value=None):
    """Change a key of params.yaml."""
    document = yaml.safe_load(PARAMS.read_text())
    put(document, key, value)
    PARAMS.write_text(yaml.safe_dump(document, sort_keys=False))


def test_the_committed_files_are_valid(clone):
    assert "fit each other" in check()


def test_files_that_dvc_cannot_hash_are_listed_before_it_hashes(clone, capsys):
    (clone / "pictures").mkdir()
    os.mkfifo(clone / "pictures/a.png")
    (clone / "pictures/b.png").symlink_to("nothing")
    part = {"source": "folder", "path": "pictures", "embeddings": "data/none"}
    change("parts", {"first": part, "second": {**part, "start": 1}})
    change("train_tokenizer.parts", None)
    assert main(["check"]) == 1
    said = capsys.readouterr().err
    assert "a.png: a pipe (FIFO)\n" in said and "b.png: a link to nothing\n" in said
    Repo.init(str(clone), no_scm=True).close()
    Path(".dvcignore").write_text("/pictures/?.png\n")
    assert main(["check"]) == 0


FAULTS = [
    ("train_generator.dit.model.widht", 128, "unknown key `train_generator.dit.model.widht`; did you mean `width`?"),
    ("train_genrator", {}, "unknown key `train_genrator`; did you mean `train_generator`?"),
    (
        "sample_generator.dit.steps",
        "ddim",
        "`sample_generator.dit.steps` is 'ddim': Input should be a valid integer, unable to parse string as an "
        "integer; or: String should match pattern",
    ),
    ("sample_generator.dit.steps", 0, "`sample_generator.dit.steps` is 0: Input should be greater than 0; or: Input"),
    (
        "train_generator.evaluate",
        {"every": 64, "images": 3, "extractor": "models/extractor", "reference": "data/reference"},
        "`train_generator.evaluate.images` is 3: Input should be greater than or equal to 4",
    ),
    ("sample_generator.dit.steps", "ddim50", "steps ddim50 are for ddpm or ddim, but solver is euler"),
    (
        "train_generator.dit.diffusion",
        {"variance": "learned_range", "target": "v"},
        "`train_generator.dit.diffusion`: target is only read with objective gaussian, but objective is flow: remove",
    ),
    (
        "train_generator.dit.diffusion",
        {"objective": "gaussian", "path": "vp"},
        "path is only read with objective flow, but objective is gaussian: remove path",
    ),
    ("train_generator.dit.diffusion.latent_scale", 0.5, "latent_scale is only read with normalise fixed"),
    ("sample_generator.dit.last_step", 0.1, "last_step is only read with solver euler_maruyama, but solver is euler"),
    (
        "sample_generator.dit.spacing",
        "linspace",
        "spacing is only read with solver ddim or ddpm or dpm, but solver is euler",
    ),
    (
        "sample_generator.common.checkpoint",
        640,
        "`train_generator.training.save_every` is null, so none is kept: set",
    ),
    ("sample_text.prior.guidance_channels", 3, "guidance_channels is for images, but the prior makes embeddings"),
    ("train_generator.training.ema_start", 38400, "ema_start (38400) must be below images (38400)"),
    ("sample_generator.dit.guidance_from", 1.0, "guidance_from (1.0) must be below guidance_to (1.0)"),
    ("train_generator.dit.model.width", -4, "`train_generator.dit.model.width` is -4"),
    ("train_generator.dit.model.heads", 3, "heads (3) must divide width (128)"),
    ("train_generator.training.images", 100, "images (100) must be a multiple of batch (64)"),
    ("train_generator.training.learning_rate", "1e-3x", "`train_generator.training.learning_rate` is '1e-3x'"),
    ("train_tokenizer.kind", "vae", "`train_tokenizer.kind` is 'vae'"),
    ("parts.Third", {"source": "digits", "path": "data/none"}, "parts.Third"),
    (
        "parts.first",
        {"source": "folder", "path": "no/such/folder", "embeddings": "data/none"},
        "`parts.first.path` is no/such/folder, which does not exist",
    ),
    (
        "parts.first",
        {"source": "folder", "path": "~/pictures", "embeddings": "data/none"},
        "which does not exist: `~` is not expanded",
    ),
    ("parts.first", {"source": "digits", "path": "data/none"}, "`parts.first.embeddings` is missing: A folder"),
    ("parts.first.embeddings", "clips", "`parts.first.embeddings` is clips, which does not exist: A folder of"),
    ("parts.first.path", 2024, "`parts.first.path` is 2024: Input should be a valid string; put it in quotes"),
    ("parts", {2024: {"source": "digits", "path": "data/none"}}, "put it in quotes"),
    (
        "parts.first",
        {"source": "folder", "path": "data", "settings": {"classes": []}},
        "`parts.first.settings.classes`",
    ),
    ("parts.first.settings", {"captoin": "x"}, "unknown key `parts.first.settings.captoin`; did you mean `caption`?"),
    (
        "parts.first.settings",
        {"caption": "{x}"},
        "`parts.first.settings.caption`",
    ),
    ("train_clip.trained.model.image_size", 64, "`train_clip.trained.model.image_size` is 64, but the images have 32"),
    ("train_decoder.unets.up.size", 64, "`train_decoder.unets.up.size` is 64, but `ingest.image_size` is 32"),
    ("train_decoder.unets.up.low_size", 8, "`train_decoder.unets.up.low_size` is 8, but no U-Net has that size"),
    ("train_decoder.unets.base.size", 32, "`train_decoder.unets`: two of base, up have the same size"),
    ("train_decoder.unets.up.low_size", None, "`train_decoder.unets.up.low_size` is None, but the next smaller U-Net"),
    ("train_decoder.unets.base.embeddings", "data/embedings", "which does not exist: data/embeddings: stored"),
    ("embed_clip.store", ["train"], "`embed_clip.store` leaves out val"),
    ("train_decoder.unets.base.training", {"init": {}}, "`init` is not a key that a U-Net can override"),
    ("train_decoder.unets.base.training", {"imags": 64}, "did you mean `images`?"),
    ("sample_decoder.unets.up", {"step": 4}, "did you mean `steps`?"),
    (
        "sample_decoder.common.steps",
        2000,
        "`sample_decoder.common.steps` is 2000, and `train_decoder.timesteps` is 1000",
    ),
    ("sample_decoder.unets.up.steps", 1001, "`sample_decoder.unets.up.steps` is 1001, and `train_decoder.timesteps`"),
    ("sample_text.prior.steps", 1001, "`sample_text.prior.steps` is 1001, and `train_prior.diffusion.timesteps`"),
    ("train_prior.evaluate.steps", 1001, "evaluate.steps is 1001, and diffusion.timesteps is 1000: set the former"),
    (
        "sample_generator.dit.solver",
        "ddim",
        "`sample_generator.dit.solver` is ddim, and `train_generator.dit.diffusion.objective` is flow: set the former "
        "to euler or heun",
    ),
    (
        "train_generator.dit.diffusion.objective",
        "gaussian",
        "sampling.solver is euler, and diffusion.objective is gaussian: set the former to ddim or ddpm or dpm",
    ),
    (
        "sample_decoder.unets.up.solver",
        "euler",
        "`sample_decoder.unets.up.solver` is euler, and `train_decoder.unets.up.diffusion.objective` is gaussian: set",
    ),
    (
        "train_decoder.unets.base.diffusion.objective",
        "flow",
        "`sample_decoder.pictures.inpainted` is 6, and `train_decoder.unets.base.diffusion.objec",
    ),
    ("train_prior.diffusion.objective", "flow", "evaluate.solver is ddim, and diffusion.objective is flow: set"),
    ("train_prior.diffusion.objective", "flaw", "must be one of flow, gaussian, mean_flow; did you mean `flow`?"),
    (
        "train_prior.diffusion.variance",
        "learned_range",
        "variance is learned_range, but a prior has one output",
    ),
    (
        "score_decoder.clip",
        "models/ViT.pt",
        "`score_decoder.clip` is models/ViT.pt, which does not exist: CLIP that measures",
    ),
    (
        "sample_decoder.unets.up.low_noise",
        0.8,
        "`train_decoder.unets.up.low.noise` is 0.5: set the former",
    ),
    ("sample_decoder.unets.base", {"embedding_noise": 0.5}, "`sample_decoder.unets.base.embedding_noise` is 0.5, and"),
    (
        "score_decoder.attributes",
        "scenes",
        "`score_decoder.attributes` is scenes, and `parts.first.source` is digits: set the former to none",
    ),
    ("sample_decoder.unets.top", {"steps": 4}, "`sample_decoder.unets.top` names no U-Net of `train_decoder.unets`"),
    (
        "train_decoder.unets.base.diffusion.image_dropout",
        0.0,
        "`sample_decoder.common.guidance` is 2.0, but `train_dec",
    ),
    ("sample_decoder.images", 1, "`sample_decoder.images` is 1, but scores need at least 2 images"),
    ("embed_clip.store", ["train", "val"], "`sample_decoder.split` is test, but `embed_clip.store` does not"),
    (
        "train_decoder.unets.base.augment",
        {"mirror": 0.5},
        "`train_decoder.unets.base`: augment.mirror changes the images, but `embeddings` (data/embeddings) are of the",
    ),
    (
        "train_decoder.unets.base.augment",
        {"scale": [0.5, 1.0]},
        "`train_decoder.unets.base`: augment.scale changes the images, but `embeddings` (data/embeddings) are of the",
    ),
    ("train_decoder.unets.up.augment", {"scale": [0.9, 0.5]}, "scale must be the smallest and the largest value: 0.9"),
    (
        "train_decoder.unets.base.grids",
        {"solver": "euler"},
        "unets.base.grids.solver is euler, and unets.base.diffusion.objective is gaussian",
    ),
    (
        "sample_decoder.common",
        {"solver": "ddpm", "guidance_variance": True},
        "`sample_decoder.common.guidance_variance` is True, and `train_decoder.unets.base.diffusion.variance` is fixed",
    ),
    (
        "sample_decoder.common",
        {"guidance_variance": True},
        "guidance_variance is only read with solver ddpm, but solver is dpm",
    ),
    ("train_decoder.training.init.folder", "models/x", "each U-Net has its own weights"),
    ("train_decoder.training.init.url", "hf://a/b@c/d.safetensors", "each U-Net has its own weights"),
    (
        "train_tokenizer.parts",
        ["third"],
        "`train_tokenizer.parts` names `third`, which is not under `parts` (first",
    ),
    (
        "parts.first",
        {"source": "folder", "path": "data", "embeddings": "data/none"},
        "`parts.first.path` is data, but Darkroom writes data/",
    ),
    ("parts.first", {"source": "shapes", "path": "data/none"}, "`parts.first`: shapes has no end"),
    ("parts.first", {"source": "folder", "path": "data/none"}, "`parts.first`: folder needs a path"),
    ("parts.first.path", "src", "`parts.first`: digits reads no file"),
    ("ingest.image_size", "33", "`ingest.image_size` is 33"),
    ("ingest", {**INGEST, "format": "jpeg", "channels": "RGBA"}, "`ingest`: JPEG has no alpha channel"),
    ("parts.first.sauce", "digits", "unknown key `parts.first.sauce`; did you mean `source`?"),
    ("parts.first.stop", 0, "`parts.first.stop` is 0"),
    ("ingest.splits.train", 0.9, "must sum to 1"),
    ("sample_generator.common.images", 1, "scores need at least 2 images"),
    ("digits.caption", "a {colour} digit", "`digits.caption`"),
    ("digits.caption", "a {word.x} digit", "`digits.caption`"),
    ("ingest.image_size", 8, "SSIM needs at least 11 pixels"),
    (
        "encode_latents.latents",
        "codes",
        "`encode_latents.latents` is codes, and `train_tokenizer.kind` is kl, which has no codes: set the former",
    ),
    ("encode_latents.latents", "mean", "`encode_latents.latents` is 'mean'"),
    ("encode_latents.shift", 32, "`encode_latents.shift` is 32, but images are 32 pixels wide: lower it."),
    ("score_tokenizer.lpips", "vgg", "`score_tokenizer.lpips` is 'vgg'"),
    ("score_generator.vgg16", "no/vgg16.pth", "`score_generator.vgg16` is no/vgg16.pth, which does not"),
    ("score_tokenizer.vgg16", "no/vgg16.pth", "`score_tokenizer.vgg16` is no/vgg16.pth, which does not"),
    ("ingest.splits", {"train": 0.9, "val": 0.1, "test": 0.0}, "`ingest.splits.test` is 0"),
    ("reference_stats.held_out", "train", "`reference_stats.held_out` is 'train'"),  # which the trainings saw
    ("training.bacth", 64, "unknown key `training.bacth`; did you mean `batch`?"),
    ("training.precision", "fp23", "`training.precision` is 'fp23', but must be one of fp32, bf16, fp16"),
    ("training.init", {"folder": "models/x"}, "unknown key `training.init`"),
    ("train_tokenizer.kl.training", {"threads": 4}, "`threads` is not a key that a kind can override"),
    ("train_tokenizer.kl.training", {"learning_rat": 4}, "`learning_rat` is not a key that a kind can override"),
    ("train_tokenizer.kl.training", {"learning_rate": -1}, "`kl.training.learning_rate`: Input should be greater than"),
    ("train_tokenizer.kl.training", {"images": 33}, "`kl.training`: images (33) must be a multiple of batch (32)"),
    ("train_generator", MISSING, "`train_generator` is missing"),
    ("parts", MISSING, "`parts` is missing"),
    ("train_tokenizer.kl", MISSING, "kl` is missing"),
    ("ingest.splits.val", MISSING, "`ingest.splits.val` is missing: Fraction of the keys in the val"),
    ("digits", MISSING, "the section `digits` is missing"),
    ("run.device", "gpu", "`run.device` is 'gpu'"),
    ("run.keep", 1, "`run.keep` is 1"),
]


@pytest.mark.parametrize(("key", "value", "sentence"), FAULTS, ids=[f"{fault[0]}={fault[1]}" for fault in FAULTS])
def test_check_names_the_key_and_what_is_wrong(clone, key, value, sentence):
    values = read_yaml(PARAMS)
    put(values, key, value)
    with pytest.raises(DarkroomError) as error:
        check(values)
    assert sentence in str(error.value)


TWELVE = {"ingest.image_size": 12, "train_generator.dit.model.patch": 1, "train_clip.trained.model.image_size": 8}
SIX = {"base.size": 6, "base.model.patch": 1, "up.size": 12, "up.model.patch": 1, "up.low_size": 6}
BASE, UP = "train_decoder.unets.base", "train_decoder.unets.up"
OF_CLIP = {f"{BASE}.embeddings": "data/none", f"{BASE}.clip": "models/clip"}
READS_TEXTS = {f"{BASE}.model.attention": [False, True], f"{BASE}.model.text_tokens": True}
# What fits; what is changed then, if anything; and what is said of that.
FITS = {
    "splits by tenths": ({"ingest.splits": {"train": 0.7, "val": 0.2, "test": 0.1}}, {}, ""),
    "splits by thirds": ({"ingest.splits": dict.fromkeys(("train", "val", "test"), 1 / 3)}, {}, ""),
    "settings left empty": ({"parts.first.settings": None}, {}, ""),
    "trainings left empty": (
        dict.fromkeys(("train_tokenizer.dvae.training", "train_generator.dit.training", f"{UP}.training")),
        {},
        "",
    ),
    "what nobody reads without a generator": (
        {
            "train_generator.kind": "none",
            "train_generator.dit.model.patch": 3,
            "sample_generator.common.images": 1,
        },
        {},
        "",
    ),
    "no U-Net reads texts": ({"sample_text.images": 19, f"{BASE}.frozen": True}, {}, ""),
    "grids are guided where the condition is dropped": (
        {f"{BASE}.grids": {"guidance": 3.0}},
        {f"{BASE}.diffusion.image_dropout": 0.0, "sample_decoder.common.guidance": 1.0},
        "`train_decoder.unets.base.grids.guidance` is 3.0, but `train_decoder.unets.base.diffusion.image_dropout` is",
    ),
    "LPIPS of the tokenizer": (
        {**TWELVE, f"{BASE}.frozen": True, f"{UP}.frozen": True},
        {"score_tokenizer.lpips": "lpips"},
        "`score_tokenizer.lpips` needs images of at least 16 pixels",
    ),
    "LPIPS of decoded images": (
        {**TWELVE, **{f"train_decoder.unets.{key}": size for key, size in SIX.items()}},
        {"score_decoder.lpips": "lpips"},
        "`score_decoder.lpips` needs images of at least 16 pixels",
    ),
    "flow matching fills nothing in": (
        {
            f"{UP}.diffusion.objective": "flow",
            "sample_decoder.unets.up.solver": "heun",
            "sample_decoder.pictures.inpainted": 0,
        },
        {"sample_decoder.pictures.inpainted": 3},
        "`sample_decoder.pictures.inpainted` is 3, and `",
    ),
    "a prior that knows every text": (
        {"train_prior.diffusion.text_dropout": 0.0},
        {"sample_text.prior.guidance": 3.0},
        "`sample_text.prior.guidance` is 3.0, but `train_prior.diffusion.text_d",
    ),
    "encodings are stored for the samples": (
        {**OF_CLIP, **READS_TEXTS, "embed_clip.encodings": True},
        {"embed_clip.encodings": False},
        "`train_decoder.unets.base.model.text_tokens` ",
    ),
    "embeddings have one length": (
        OF_CLIP,
        {"embed_clip.normalise": False},
        "`train_decoder.unets.base.clip` is models/clip, and `embed_clip.normalise` is false",
    ),
    "a U-Net that keeps its weights reads embeddings": (
        {f"{BASE}.frozen": True, f"{BASE}.weights": "data"},
        {"embed_clip.store": ["val", "test"]},
        "`embed_clip.store` leaves out train",
    ),
    "without CLIP": (
        {"train_clip.source": "none", f"{BASE}.diffusion.image_dropout": 0.0, "sample_text.images": 1},
        {"sample_decoder.images": 1},
        "`sample_decoder.images` is 1",
    ),
}


@pytest.mark.parametrize(("fits", "further", "sentence"), FITS.values(), ids=FITS)
def test_what_fits_is_accepted_and_what_no_longer_does_is_named(clone, fits, further, sentence):
    values = read_yaml(PARAMS)
    for key, value in fits.items():
        put(values, key, copy.deepcopy(value))
    check(values)
    for key, value in further.items():
        put(values, key, value)
    if further:
        with pytest.raises(DarkroomError, match=re.escape(sentence)):
            check(values)


@pytest.mark.parametrize(
    ("key", "value", "plain"),
    [
        ("weights", "raw", "ema"),
        ("checkpoint", 64, "null"),
        ("labels", "frequency", "null"),
    ],
)
def test_published_weights_have_no_training_of_which_to_ask_more(clone, capsys, key, value, plain):
    change("train_generator.kind", "pretrained")
    change("sample_generator.pretrained", {})
    change(f"sample_generator.common.{key}", value)
    main(["check"])
    said = capsys.readouterr().err
    assert f"`sample_generator.common.{key}` is {value}, and `train_generator.kind` is pretrained" in said
    assert f"set the former to {plain}." in said


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"train_generator.training.init.url": "hf://a/b@c/d.safetensors"}, "and {none}, so it has no effect: set the"),
        ({"train_generator.training.init.folder": "src"}, "is src, and {none}, so it has no effect: set the former"),
        ({"train_generator.training.processes": 2}, "kind is none, which is not trained: set `train_generator.tra"),
        (
            {
                "train_generator.evaluate": {
                    "every": 64,
                    "extractor": "models/extractor",
                    "reference": "data/reference",
                },
            },
            "`train_generator.evaluate.every` is 64, and {none}, so it has no effect: set the former to 0, or choose",
        ),
        ({"train_generator.embeddings": "data/embeddings"}, "but kind is none, which reads none: set the former to"),
        ({"train_generator.none.training": {"batch": 8}}, "nothing is trained, so `training` must be {{}}"),
        ({"sample_generator.common.processes": 2}, "`sample_generator.common.processes` is 2, and {none}, so it has"),
        ({"sample_generator.common.weights": "raw"}, "`sample_generator.common.weights` is raw, and {none}, which"),
        ({"sample_generator.dit.classifier": "models/classifier"}, "is models/classifier, and {none}, so it has no"),
        ({"sample_generator.dit.guide": "src"}, "`sample_generator.dit.guide` is src, and {none}, so it has no"),
        (
            {"score_generator.bits": {"generator": "models/generator", "latents": "data/latents"}},
            "`score_generator.bits.generator` is models/generator, and {none}, so it has no effect: set the former and "
            "`.latents` to data/none, or choose a generator.",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_without_a_generator_nothing_may_ask_for_one(clone, capsys, changes, sentence):
    change("train_generator.kind", "none")
    assert main(["check"]) == 0
    for key, value in changes.items():
        change(key, value)
    assert main(["check"]) == 1
    assert sentence.format(none="`train_generator.kind` is none") in capsys.readouterr().err


@pytest.mark.parametrize("weight", [{"min_snr": 5.0}, {"p2_gamma": 0.5}])
def test_the_bound_takes_no_other_weights(weight):
    with pytest.raises(ValueError, match="loss kl is the bound, which has its own weights"):
        Diffusion(objective="gaussian", loss="kl", **weight)


def test_all_faults_are_told_at_once(clone):
    change("train_generator.dit.model.widht", 1)
    change("sample_generator.dit.steps", 0)
    with pytest.raises(DarkroomError, match=r"(?s)widht.*|sample_generator\.steps") as error:
        check()
    assert "widht" in str(error.value) and "sample_generator.dit.steps" in str(error.value)


def test_dvc_yaml_that_does_not_fit_is_refused(clone):
    original = (clone / "dvc.yaml").read_text()
    for old, new, sentence in [
        ("  report:\n", "  reprot:\n", "these stages are unknown or missing: report, reprot"),
        ("      - sample_generator.common\n", "      - sample_genrator.common\n", "Did you mean `sample_generator`"),
        ("darkroom sample_generator\n", "darkroom sample\n", "the command of sample_generator"),
        ("    cmd: PYTHONPATH=src python -m darkroom sample_generator\n", "", "`sample_generator` has no command"),
        ("      - sample_generator.common\n", "      - sample_generator: [common]\n", "must be a list of strings"),
        ("stages:\n", "stages:\nstages_:\n", "`stages` must be a mapping"),
        ("    outs: [samples/generator]\n", "    outs: [models/generator]\n", "writes models/generator"),
        (
            "    outs: [samples/generator]\n",
            "    outs: [samples/dti]\n",
            "score_generator depends on samples/generator, which does not exist",
        ),
    ]:
        assert old in original
        (clone / "dvc.yaml").write_text(original.replace(old, new, 1))
        with pytest.raises(DarkroomError) as error:
            check()
        assert sentence in str(error.value)


def test_a_stage_sees_its_own_sections_and_run(clone):
    values = stage_params("train_generator")
    assert set(values) == {"run", "train_generator"}
    assert set(stage_params("ingest", "first")) == {"run", "parts", "digits", "ingest"}
    assert set(stage_params("ingest", "first")["parts"]) == {"first"}
    assert set(stage_params("train_tokenizer")["train_tokenizer"]) == {"kind", "teacher", "training", "kl"}


def test_no_stage_depends_on_run():
    stages = read_yaml(ROOT / "dvc.yaml")["stages"]
    for name, entry in stages.items():
        named = entry.get("do", entry).get("params", [])
        assert not [key for key in named if key.split(".")[0] == "run"], name


def test_templates_resolve_as_in_dvc():
    assert resolve("a/${b.c}/${d}", {"b": {"c": 1}, "d": "x"}) == "a/1/x"
    with pytest.raises(DarkroomError, match="Did you mean `depth`"):
        lookup({"model": {"depth": 1}}, "model.dept")


def test_paths_and_parameters_are_those_that_dvc_resolves(clone):
    params, dvc = read_yaml(PARAMS), read_yaml(DVC)
    with Repo.init(str(clone), no_scm=True) as repo:
        stages = {stage.addressing: stage for stage in repo.index.stages}
    for name in STAGES:
        for item in items(params, dvc, name):
            stage, names = stages.pop(address(name, item)), scope(params, dvc, name, item)
            deps = {dep.def_path: dep for dep in stage.deps}
            named = deps.pop(str(PARAMS), None)
            entry = stage_entry(dvc, name)
            assert set(deps) == set(paths(entry, ["deps"], names))
            assert {out.def_path for out in stage.outs} == set(paths(entry, OUTPUTS, names))
            assert {resolve(key, names) for key in entry.get("params", [])} == set(named.params if named else ())
    assert not stages


def test_check_needs_no_torch(clone):
    import subprocess
    import sys

    code = "import sys; from darkroom.cli import main; main(['check']); print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": "src", "PATH": ""}, capture_output=True)
    assert out.stdout.decode().splitlines()[-1] == "False"


def test_text_that_is_not_utf8_names_the_file(clone):
    (clone / "params.yaml").write_bytes(b"run: \xff\xfe")
    with pytest.raises(DarkroomError, match=r"params\.yaml is not valid YAML"):
        check()


def test_no_locale_changes_what_is_read(tmp_path):
    (tmp_path / "params.yaml").write_text("caption: größer", encoding="utf-8")
    program = "from darkroom.params.stage import *; print(ascii(read_yaml(PARAMS)['caption']))"
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env={**os.environ, **plain}, capture_output=True, text=True
    )
    assert done.stdout.strip() == ascii("größer"), done.stderr


def test_the_order_of_parts_is_no_input(clone):
    values = stage_params("catalog")
    turned = {**values, "parts": dict(reversed(values["parts"].items()))}
    assert list(turned["parts"]) == ["second", "first"]
    for mapping in (values, turned):
        assert list(validate(schema("catalog"), mapping).parts) == ["first", "second"]


def test_the_engine_and_the_stage_count_the_same_threads(clone):
    """What is set before NumPy is loaded, and what Snakemake reserves, is what the stage's own section says."""

    def own(stage):
        return getattr(validate(schema(stage), stage_params(stage, item[stage])), stage)

    values, places = yaml.safe_load(Path("params.yaml").read_text()), {}
    numbers = {stage: 3 + at for at, stage in enumerate(STAGES) if stage not in ("code", "report")}
    item = {stage: items(values, read_yaml(Path("dvc.yaml")), stage)[0] for stage in numbers}
    for stage, number in numbers.items():
        # The section itself, or that part of it, has the key.
        held = own(stage)
        places[stage] = next(
            name for name in ("", "common", "training") if hasattr(getattr(held, name, held), "threads")
        )
        section = values[stage].setdefault(places[stage], {}) if places[stage] else values[stage]
        section["threads"] = number
    Path("params.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    found = {stage: (threads(stage_params(stage, item[stage])[stage]), own(stage)) for stage in numbers}
    found = {stage: (engine, getattr(held, places[stage], held).threads) for stage, (engine, held) in found.items()}
    assert found == {stage: (number, number) for stage, number in numbers.items()}


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("data/shards", "data/shards/first", True),
        ("data/shards/first", "data/shards", True),
        ("data/shards", "data/shards/", True),
        ("./data", "data/shards", True),
        ("data/shards", "data/shards2", False),
        ("data/../models", "models/generator", True),
        (".", "models/generator", True),
        ("/data", "data/shards", False),
        ("/", "/data", True),
    ],
)
def test_paths_are_related_where_one_lies_in_the_other(one, other, expected):
    assert related(one, other) is expected


def test_vq_ar_keeps_adamw_where_the_other_tokenizers_take_muon(clone):
    """By Muon its result depends on the seed (results/tokenizers.md); `darkroom init` writes muon for the stage."""
    change("train_tokenizer.training.optimizer", "muon")
    for kind, optimizer in (("kl", "muon"), ("vq_ar", "adamw")):
        change("train_tokenizer.kind", kind)
        settings = validate(schema("train_tokenizer"), stage_params("train_tokenizer")).train_tokenizer
        assert settings.own_training.optimizer == optimizer


def test_the_narrowest_section_decides_what_a_training_does(clone):
    """Defaults of the stage, then `training`, then the stage's own, then that of the kind or of the U-Net."""
    stages = ("train_tokenizer", "train_decoder", "train_clip")
    kept = [read_yaml(PARAMS)[stage]["training"] for stage in stages]
    assert all("weight_decay" not in training for training in kept)

    def decays():
        tokenizer = validate(schema("train_tokenizer"), stage_params("train_tokenizer")).train_tokenizer
        decoder = validate(schema("train_decoder"), stage_params("train_decoder", "base")).train_decoder
        clip = validate(schema("train_clip"), stage_params("train_clip")).train_clip.training
        return tokenizer.own_training.weight_decay, decoder.training_of("base").weight_decay, clip.weight_decay

    assert decays() == (0.0, 0.0, 0.01)
    change("training.weight_decay", 0.1)
    assert decays() == (0.1, 0.1, 0.1)
    for stage in stages:
        change(f"{stage}.training.weight_decay", 0.2)
    assert decays() == (0.2, 0.2, 0.2)
    change("train_tokenizer.kl.training", {"weight_decay": 0.3})
    change("train_decoder.unets.base.training", {"weight_decay": 0.4})
    assert decays() == (0.3, 0.4, 0.2)


def test_the_default_of_each_section_is_valid():
    """`model_construct` does not validate."""

    def below(section: type[Section]) -> Iterator[type[Section]]:
        for each in section.__subclasses__():
            yield from (each, *below(each))

    own = [each for each in below(Section) if each.__module__.startswith("darkroom.") and each.__name__ != "Whole"]
    defaults = [field.default for section in own for field in section.model_fields.values()]
    sections = [default for default in defaults if isinstance(default, Section)]
    assert len(sections) > 50
    for default in sections:
        assert type(default).model_validate(default.model_dump()) == default
