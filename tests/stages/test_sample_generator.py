"""The stage `sample_generator`: of which weights and classes its images are, and that a kill costs one batch."""

import json
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from darkroom.artifacts.manifest import ArtifactError, file_hashes, write_manifest
from darkroom.check.check import read_params
from darkroom.data.reader import ImageShards
from darkroom.diffusion.flow import Flow
from darkroom.errors import DarkroomError
from darkroom.models.generators import load, sampler
from darkroom.models.generators.dit.classifier import Classifier, ClassifierConfig
from darkroom.models.generators.dit.config import DiTConfig
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.dit.sample import DiTSampler, dit_denoiser
from darkroom.models.generators.sample_settings import Params
from darkroom.models.generators.sampler import KeptBatches
from darkroom.processes.launch import environments, supervise
from darkroom.stages import generated, sample_generator
from darkroom.terminal import terminal as progress
from helpers import DIGITS
from models.generators.models_made import write_models

VALUES = read_params(DIGITS)
TINY = {"threads": 1, "images": 4, "batch": 4, "shard_size": 4}


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    enter(tmp_path, monkeypatch)
    write_models()
    return tmp_path / "models/generator"


def enter(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a folder the working folder, with what the stage's state is known by."""
    monkeypatch.chdir(folder)
    for name in ("DVC_ROOT", "RANK", "WORLD_SIZE", "DARKROOM_SUPERVISOR"):
        monkeypatch.delenv(name, raising=False)
    deps, outs = ["models/generator", "models/tokenizer"], ["samples/generator"]
    stage = {"cmd": "x", "params": ["sample_generator"], "deps": deps, "outs": outs}
    Path("dvc.yaml").write_text(yaml.safe_dump({"stages": {"sample_generator": stage}}))


def test_a_generator_of_another_kind_than_params_yaml_chooses_is_refused(model: Path) -> None:
    there = json.loads((model / "manifest.json").read_text())
    facts = {name: value for name, value in there.items() if name not in ("kind", "format", "seal")}
    write_manifest(model, "generator", **(facts | {"generator_kind": "masked"}))
    with pytest.raises(DarkroomError, match=r"of the kind `masked`, but params\.yaml chooses another"):
        shards()


def test_a_solver_of_another_objective_than_the_trained_one_is_refused(model: Path) -> None:
    """Params.yaml may have changed since: what was trained counts."""
    with pytest.raises(
        DarkroomError, match=r"`sample_generator\.dit\.solver` is ddim, but .* was trained with `objective`"
    ):
        shards({"solver": "ddim"})


def write_params(dit: dict[str, object] | None = None, **changes: object) -> Params:
    """Write params.yaml, and return the parameters of the stage."""
    of_kind = {"steps": 2, **(dit or {})}
    values = {key: VALUES[key] for key in ("run", "sample_generator")}
    own = {"common": TINY | changes, "dit": of_kind}
    values["sample_generator"] = {name: {**values["sample_generator"][name], **own[name]} for name in own}
    values["run"] = {**values["run"], "device": "cpu"}
    Path("params.yaml").write_text(yaml.safe_dump(values))
    return Params.model_validate(values)


def shards(dit: dict[str, object] | None = None, **changes: object) -> bytes:
    """Run the stage and return its first shard."""
    sample_generator.run(write_params(dit, **changes))
    return Path("samples/generator/00000.tar").read_bytes()


def manifest() -> dict[str, Any]:
    """Return the manifest of the samples."""
    return json.loads(Path("samples/generator/manifest.json").read_text())


def images() -> np.ndarray:
    """Return the samples, uint8 (N, C, H, W)."""
    found = ImageShards.open_folder(Path("samples/generator"), "samples")
    return np.concatenate(list(found.batches(16)))


def test_weights_kept_on_the_way_are_sampled_by_their_images(model: Path) -> None:
    plain = shards()
    other = DiT.from_pretrained(model / "raw")
    for place in (model / "checkpoints" / "images-000000000032", model / "checkpoints" / "images-000000000032" / "raw"):
        other.save_pretrained(place)
    kept = shards(checkpoint=32)
    assert kept != plain and kept == shards(checkpoint=32, weights="raw") == shards(weights="raw")
    with pytest.raises(ArtifactError, match=r"checkpoint` is 16, but models/generator keeps the weights of 32:"):
        shards(checkpoint=16)


# ----------------------------------------------------------------------------------------------------------------------
# The same bytes: for any request, after a kill, and by several processes


@pytest.fixture
def batches_seen(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Return a list that takes the numbers of each batch that the network sees."""
    seen: list[list[int]] = []
    sample = DiTSampler.__call__

    def watched(self: DiTSampler, numbers: Sequence[int], *others: Any) -> torch.Tensor:
        seen.append(list(numbers))
        return sample(self, numbers, *others)

    monkeypatch.setattr(DiTSampler, "__call__", watched)
    return seen


def test_an_image_does_not_depend_on_how_many_are_requested(model: Path, batches_seen: list[list[int]]) -> None:
    shards(images=64, batch=8)
    all_of_them = images()
    for count in (1, 7):
        batches_seen.clear()
        shards(images=count, batch=8)
        np.testing.assert_array_equal(images(), all_of_them[:count])
        # The bits of a row may depend on how many there are, though they seldom do in a network this small.
        assert batches_seen == [list(range(8))]


def test_the_seed_decides_and_the_batch_rounds_at_most(model: Path) -> None:
    shards(images=9, batch=8)
    first = images().astype(int)
    shards(images=9, batch=8, seed=2)
    assert all((one != other).any() for one, other in zip(images(), first, strict=True))
    shards(images=9, batch=3)
    assert abs(images() - first).max() <= 1, "a level of grey where sums are rounded otherwise"


def test_progress_counts_images_and_no_padding(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0)
    shards(images=5, batch=4)
    lines = re.findall(r"sampled: (.*?) images,", capsys.readouterr().out)
    assert lines == ["4 of 5"], "the last line is left out, as all is done"


def firsts(batches: list[list[int]]) -> list[int]:
    return [numbers[0] for numbers in batches]


def kept() -> list[Path]:
    return sorted(Path(".darkroom/state").glob("sample_generator-*/batches-*/*"))


def test_a_killed_stage_continues_with_the_next_batch(
    model: Path, batches_seen: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = shards(images=20)
    assert firsts(batches_seen) == [0, 4, 8, 12, 16] and not kept()
    keep, there = KeptBatches.keep, []

    def killed(self: KeptBatches, start: int, images: np.ndarray) -> None:
        if start == 12:
            raise SystemExit(143)
        keep(self, start, images)

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(KeptBatches, "keep", killed)
        shards(images=20)
    there = kept()
    assert [path.name for path in there] == [f"{start:012d}.npy" for start in (0, 4, 8)]
    batches_seen.clear()
    shards(images=8)
    assert firsts(batches_seen) == [0, 4] and kept() == there, "another request has batches of its own"
    batches_seen.clear()
    assert shards(images=20) == whole and firsts(batches_seen) == [12, 16]
    assert not kept() and not list(Path(".darkroom/state").glob("*/batches-*"))


def test_batches_of_other_code_or_models_are_not_taken(
    model: Path, batches_seen: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*others: Any, **more: Any) -> None:
        raise OSError("the disk is gone")

    def interrupted() -> None:
        with monkeypatch.context() as patch, pytest.raises(OSError, match="gone"):
            patch.setattr(generated, "write_generated", lost)
            shards(images=8)

    interrupted()
    assert len(kept()) == 2
    with monkeypatch.context() as patch:
        patch.setattr(sampler, "read_entry", lambda folder, name: {"darkroom.rng": {"normal": "changed"}})
        batches_seen.clear()
        interrupted()
        assert firsts(batches_seen) == [0, 4] and len(kept()) == 2, "those of the code of before are gone"
    there = json.loads((model / "manifest.json").read_text())
    changed = {name: value for name, value in there.items() if name not in ("kind", "format", "seal")}
    write_manifest(model, "generator", **(changed | {"latent_mean": [0.5, 0.5]}))
    batches_seen.clear()
    shards(images=8)
    assert firsts(batches_seen) == [0, 4]


def test_batches_of_another_device_are_not_taken(model: Path) -> None:
    shards(images=4)
    (state,) = Path(".darkroom/state").glob("sample_generator-*")
    here, there = KeptBatches.place(state), None
    here.mkdir()
    there = KeptBatches.place(state, "NVIDIA H100")
    assert there != here and not here.exists() and there == KeptBatches.place(state, "NVIDIA H100")


RANK = """
import os
from darkroom.environment import choose_device, set_threads
set_threads(1)
choose_device("cpu")
from darkroom.models.generators.sample_settings import Params
from darkroom.params.section import validate
from darkroom.params.stage import stage_params
from darkroom.processes.launch import environments, supervise
from darkroom.stages import sample_generator
from darkroom.models.generators.sampler import KeptBatches
keep = KeptBatches.keep
def told(self, start, images):
    if os.environ.get("KILLED_AT") == str(start):
        os.kill(os.getpid(), 9)
    with open(f"made-{os.environ['RANK']}", "a") as file:
        print(start, file=file)
    keep(self, start, images)
KeptBatches.keep = told
sample_generator.run(validate(Params, stage_params("sample_generator")))
"""


@pytest.mark.slow
def test_two_killed_processes_are_continued_by_one_or_two(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each makes its share; what is kept is made once; the bytes are those of one process that was left alone."""
    alone = shards(images=23), manifest()
    shutil.rmtree("samples")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "src"))
    write_params(images=23, processes=2)
    ranks = [([sys.executable, "-c", RANK], place) for place in environments(2)]
    with pytest.raises((DarkroomError, SystemExit)):
        supervise([(command, {**place, "KILLED_AT": "12"}) for command, place in ranks], 2)
    there = {int(path.stem) for path in kept()}
    assert 4 in there and 12 not in there and not Path("samples/generator").exists()
    shutil.copytree(".darkroom", "before")
    supervise(ranks, 2)
    shares = [sorted(map(int, Path(f"made-{rank}").read_text().split())) for rank in (0, 1)]
    assert shares == [[0, 8, 16], [4, 12, 20]]
    for continued in (2, 1):
        if continued == 1:
            shutil.rmtree(".darkroom")
            Path("before").rename(".darkroom")
            shards(images=23)
        assert (Path("samples/generator/00000.tar").read_bytes(), manifest()) == alone and not kept()


# ----------------------------------------------------------------------------------------------------------------------
# Classes


def classes() -> list[str]:
    return [str(label) for label in ImageShards.open_folder(Path("samples/generator"), "samples").labels]


def test_classes_by_number_are_those_of_the_images(model: Path) -> None:
    shards(images=None, labels={"7": 5, "3": 2})
    assert sorted(classes()) == ["3"] * 2 + ["7"] * 5 and manifest()["images"] == 7
    assert manifest()["counts"]["7"] == 5 and manifest()["sampler"]["labels"] == {"3": 2, "7": 5}
    assert manifest()["distribution"] == {"3": 2, "7": 5}
    found, names = images(), classes()
    shards(images=8, batch=4, labels={"7": 8})
    for number in range(7):
        same = bool((images()[number] == found[number]).all())
        assert same == (names[number] == "7"), "the class is what differs"


def test_classes_by_frequency_are_those_of_the_training_split(model: Path) -> None:
    shards(images=40, batch=8, labels="frequency")
    names = classes()
    counts = {name: names.count(name) for name in "0123456789"}
    assert all(abs(counts[str(number)] - 40 * of / 200) <= 2 for number, of in enumerate([0, 10, 20, 30, 40]))
    assert counts["0"] == counts["5"] == 0 and counts["9"] >= 18 and manifest()["counts"] == counts
    assert manifest()["sampler"]["labels"] == "frequency" == manifest()["distribution"]
    shards(images=7, batch=8, labels="frequency")
    assert classes() == names[:7]
    shards(images=40, batch=8)  # what is not set
    assert classes() == names and manifest()["sampler"]["labels"] == "frequency" == manifest()["distribution"]
    shards(images=20, batch=8, labels="balanced")
    assert classes() == 2 * list("0123456789") and manifest()["distribution"] == "balanced"


def test_a_generator_of_before_has_no_frequencies(model: Path) -> None:
    there = json.loads((model / "manifest.json").read_text())
    facts = {name: value for name, value in there.items() if name not in ("kind", "format", "seal", "class_counts")}
    write_manifest(model, "generator", **facts)
    with pytest.raises(DarkroomError, match=r"labels` is frequency, .*dvc repro train_generator"):
        shards(labels="frequency")
    shards(images=20)
    assert classes() == 2 * list("0123456789") and manifest()["distribution"] == "balanced"


def test_a_class_that_is_not_there_is_named_with_the_nearest(model: Path) -> None:
    with pytest.raises(DarkroomError, match=r"common\.labels` names the class `77`, .* did you mean `7`\?"):
        shards(images=4, labels={"77": 4})


# ----------------------------------------------------------------------------------------------------------------------
# Weights, precision, further files


def test_raw_weights_are_those_of_the_folder_raw(model: Path) -> None:
    assert shards(weights="raw") != shards()
    shutil.rmtree(model / "raw")
    with pytest.raises(DarkroomError, match=r"models/generator/raw/.* is missing"):
        shards(weights="raw")


def another_run(name: str, **changes: object) -> Path:
    """Write the folder of another run's generator, a smaller network of the same latents, its manifest changed."""
    torch.manual_seed(3)
    small = DiT(DiTConfig(2, 8, 10, 8, 1, 2, 4))
    with torch.no_grad():
        for parameter in small.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    folder = Path(name)
    small.save_pretrained(folder)
    there = json.loads(Path("models/generator/manifest.json").read_text())
    facts = {name: value for name, value in there.items() if name not in ("kind", "format", "seal", "files")}
    write_manifest(folder, "generator", **(facts | changes), files=file_hashes(folder))
    return folder


def test_guidance_leads_away_from_another_runs_network(model: Path) -> None:
    shards({"guidance": 1.0}, images=8)
    plain = images().astype(int)
    guide = str(another_run("models/guide"))
    shards({"guidance": 3.0, "guide": guide}, images=8)
    away = images().astype(int)
    shards({"guidance": 3.0, "guide": "data/none"}, images=8)
    assert np.abs(away - plain).max() > 2 and np.abs(away - images()).max() > 2
    assert manifest()["sampler"]["guide"] == "data/none"
    # Away from itself leads nowhere.
    shards({"guidance": 3.0, "guide": "models/generator"}, images=8)
    assert np.abs(images().astype(int) - plain).max() <= 1
    # And the formula, on the network itself.
    strong, weak = DiT.from_pretrained(model), DiT.from_pretrained(Path(guide))
    x, t, labels = torch.randn(2, 2, 8, 8), torch.full((2,), 0.5), torch.tensor([3, 4])
    with torch.no_grad():
        found = dit_denoiser(strong, Flow(), labels, 10, 3.0, weak)(x, t, None).velocity
        one, other = (network(x, 1000 * t, labels) for network in (strong, weak))
    torch.testing.assert_close(found, other + 3 * (one - other))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"latent_shape": [4, 8, 8]}, "with `latent_shape` 4, 8, 8, but the generator with 2, 8, 8"),
        ({"latent_std": [2.0, 2.0]}, "with `latent_std` 2.0, 2.0"),
        ({"tokenizer": "x"}, "with `tokenizer` x"),
        ({"classes": ["a", "b"]}, "with `classes` a, b, but the generator with 0, 1, 2, 3, 4, …"),
        ({"objective": "gaussian"}, "with `objective` gaussian, but the generator with flow"),
        ({"context_length": 8}, "with `context_length` 8, but the generator with 5"),
        ({"prediction": {"path": "gvp"}}, "with `path` gvp, but the generator with linear"),
    ],
)
def test_another_run_that_does_not_fit_is_refused_by_file_and_key(model: Path, changes: Any, said: str) -> None:
    there = json.loads((model / "manifest.json").read_text())
    facts = {name: value for name, value in there.items() if name not in ("kind", "format", "seal")}
    ours = {"objective": "flow", "prediction": {"path": "linear"}, "context_length": 5}
    write_manifest(model, "generator", **(facts | ours))
    another_run("models/guide", **changes)
    with pytest.raises(DarkroomError, match=re.escape(said)) as error:
        shards({"guide": "models/guide"})
    assert "`sample_generator.dit.guide` is models/guide" in str(error.value)


def write_classifier(**changes: object) -> Path:
    """Write a classifier of the generator's latents, its manifest changed."""
    folder = Path("models/classifier")
    torch.manual_seed(0)
    network = Classifier(ClassifierConfig(2, 8, 10, 16, 1, 2, 2))
    with torch.no_grad():
        network.head.weight.mul_(20)
    network.save_pretrained(folder)
    there = json.loads(Path("models/generator/manifest.json").read_text())
    facts = {name: there[name] for name in ("classes", "latent_shape", "latent_mean", "latent_std", "tokenizer")}
    write_manifest(folder, "classifier", trained=True, **(facts | changes), files=file_hashes(folder))
    return folder


def test_a_classifier_guides_alone_and_beside_guidance(model: Path) -> None:
    write_classifier()
    named = {"classifier": "models/classifier"}
    found = {}
    for scale in (0.0, 5.0):
        for guidance in (1.0, 2.0):
            shards({"guidance": guidance, "classifier_scale": scale, **named}, images=8)
            found[scale, guidance] = images().astype(int)
    shards({"guidance": 2.0}, images=8)
    np.testing.assert_array_equal(found[0.0, 2.0], images())
    for guidance in (1.0, 2.0):
        assert np.abs(found[5.0, guidance] - found[0.0, guidance]).max() > 2
    shards({"guidance": 2.0, "classifier_scale": 5.0, **named}, images=3, batch=4)
    np.testing.assert_array_equal(images(), found[5.0, 2.0][:3], "of each image its own gradient")


def test_a_classifier_that_does_not_fit_is_refused(model: Path) -> None:
    with pytest.raises(DarkroomError, match=r"`sample_generator.dit.classifier` is models/classifier, which holds no"):
        shards({"classifier_scale": 1.0, "classifier": "models/classifier"})
    write_classifier(classes=["a"])
    with pytest.raises(DarkroomError, match="with `classes`"):
        shards({"classifier_scale": 1.0, "classifier": "models/classifier"})
    write_manifest(Path("models/classifier"), "classifier", trained=False, reason="of the weather", files={})
    with pytest.raises(DarkroomError, match="which was not trained, because of the weather"):
        shards({"classifier_scale": 1.0, "classifier": "models/classifier"})
    with pytest.raises(ValueError, match="classifier_scale is only read with classifier"):
        write_params({"classifier_scale": 1.0})


def test_bf16_changes_the_network_and_little_of_the_images(model: Path) -> None:
    shards(images=8)
    plain = images().astype(int)
    shards(images=8, precision="bf16")
    assert 0 < abs(images() - plain).mean() < 4
    assert manifest()["sampler"]["precision"] == "bf16"


def test_tf32_and_compilation_reach_torch(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[bool] = []
    monkeypatch.setattr(DiT, "compile", lambda self, dynamic: compiled.append(dynamic))
    allowed: list[bool] = []
    monkeypatch.setattr(load, "allow_tf32", allowed.append)
    shards(tf32=True, compile=True)
    assert compiled == [False] and allowed == [True]
    shards()
    assert compiled == [False] and allowed == [True, False]


def test_the_npz_holds_the_images_of_the_shards(model: Path) -> None:
    shards(images=6, npz=True)
    path = Path("samples/generator/samples.npz")
    first = path.read_bytes()
    stored = np.load(path)["arr_0"]
    assert stored.dtype == np.uint8 and manifest()["files"]["samples.npz"]
    np.testing.assert_array_equal(stored, images().transpose(0, 2, 3, 1))
    shards(images=6, npz=True)
    assert path.read_bytes() == first
    shards(images=6)
    assert not path.exists()
