"""What `vq_ar` draws while it trains, scored: through the stages, of colour images whose classes are unequal."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from darkroom.artifacts.manifest import ArtifactError, file_hashes, write_manifest
from darkroom.check.check import read_params
from darkroom.data.catalog import write_selection
from darkroom.data.catalog_writer import write_catalog
from darkroom.data.images import ImageSpec, to_pil
from darkroom.models.evaluators.evaluation import Evaluation
from darkroom.models.evaluators.extractor import Classifier
from darkroom.models.tokenizers import settings as sections
from darkroom.models.tokenizers.settings import Params
from darkroom.models.tokenizers.vq_ar.recipe import VQARRecipe
from darkroom.params import reference_stats as of_reference
from darkroom.params.section import validate
from darkroom.params.training import EvaluateGenerator
from darkroom.stages import reference_stats, sample_tokenizer, score_tokenizer_samples, train_tokenizer
from darkroom.training.loop import seeded
from data.making import Noise, make_part
from helpers import run, training

ROOT = Path(__file__).parents[2]
NETWORKS = {
    name: read_params(ROOT / "params.yaml")["reference_stats"][name] for name in ("inception", "dinov2", "clip")
}
SPEC, CLASSES = ImageSpec(8, "RGB", "png"), ("bright", "dark", "red")
CURVES, MODEL = Path("curves/tokenizer"), Path("models/tokenizer/model.safetensors")
SCORED = {"every": 24, "images": 12, "batch": 5, "extractor": "models/extractor", "reference": "data/reference"}


class Shades(Noise):
    """Noise in a colour by class: of ten images seven are dark, two bright, one red."""

    def read(self, entry: Any) -> Any:
        raw = super().read(entry)
        label = "red" if entry.payload % 10 == 9 else "bright" if entry.payload % 10 > 6 else "dark"
        image = np.asarray(raw.image).astype(int) // 4
        image[..., : 1 if label == "red" else 3] += 0 if label == "dark" else 190
        return replace(raw, image=to_pil(image.astype(np.uint8).transpose(2, 0, 1)), label=label)


def write_extractor(shape: tuple[int, int, int] = (3, 8, 8), classes: tuple[str, ...] = CLASSES) -> None:
    """Write an untrained in-domain extractor, whose group norms see all of five channels at once, and so colours."""
    folder = Path("models/extractor")
    folder.mkdir(parents=True, exist_ok=True)
    with seeded(0):
        Classifier(3, len(classes), [5, 5], 3, 0.0).save_pretrained(folder)
    write_manifest(folder, "extractor", image_shape=list(shape), classes=list(classes), files=file_hashes(folder))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("clone")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        make_part(Path("data/shards"), "one", 0, 100, SPEC, source=Shades(SPEC))
        for name, write in (("catalog", write_catalog), ("selection", write_selection)):
            Path("data", name).mkdir()
            write(Path("data", name), ["one"])
        write_extractor()
        how = {"threads": 1, "batch": 8, "blocks": 2, "split": "train", "held_out": "test", "kid_images": 100}
        section = {**how, "extractors": ["in_domain"], **NETWORKS}
        reference_stats.run(validate(of_reference.Params, {"run": run().model_dump(), "reference_stats": section}))
    return root


@pytest.fixture
def clone(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(whole, tmp_path / "clone")
    monkeypatch.chdir(tmp_path / "clone")
    monkeypatch.setattr("darkroom.training.stage.open_state", lambda stage, item: nullcontext(Path("state")))


def train(evaluate: dict[str, Any] | None = None, classes: bool = True, **changes: Any) -> bytes:
    """Train a tiny `vq_ar` on 64 images; return its weights."""
    network = {"patch": 4, "dim": 16, "depth": 1, "heads": 1, "head_dim": 16, "codebook_dim": 4, "codebook_size": 8}
    section = {
        "kind": "vq_ar",
        "training": training(images=64).model_dump(),
        "evaluate": evaluate or {},
        "vq_ar": {**network, "dropout": 0.1, "classes": classes, **changes},
    }
    train_tokenizer.run(validate(Params, {"run": run().model_dump(), "train_tokenizer": section}))
    return MODEL.read_bytes()


def curve(name: str) -> dict[int, float]:
    """Return the points of a curve, by images seen."""
    (path,) = CURVES.rglob(f"{name}.tsv")
    rows = [line.split("\t") for line in path.read_text().splitlines()[1:]]
    return {int(row[0]): float(row[-1]) for row in rows}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.usefixtures("clone")
@pytest.mark.parametrize("classes", [True, False])
def test_scores_are_those_of_the_stages_that_sample_and_score(classes: bool) -> None:
    """Of the averaged weights at the end: as many of each class, from a reference that is weighted so."""
    asked = {"images": 12, "batch": 5, "seed": 5}
    train(SCORED | asked, classes, sampling={"min_p": 0.25, "guidance": 2.0})
    how = {"shard_size": 12, "min_p": 0.25, "guidance": 2.0}
    values = {"run": run().model_dump(), "sample_tokenizer": {"threads": 1, **asked, **how}}
    sample_tokenizer.run(validate(sections.SampleParams, values))
    values = {"run": values["run"], "reference_stats": NETWORKS, "score_tokenizer_samples": {"batch": 5, "blocks": 6}}
    values["score_tokenizer_samples"] |= {"threads": 1, "copies": {"images": 0}}
    score_tokenizer_samples.run(validate(sections.ScoreSamplesParams, values))
    scores = json.loads(Path("metrics/tokenizer_samples.json").read_text())
    for name in ("fd", "fd_debiased", "kid", *(["label_accuracy"] if classes else [])):
        assert curve(f"eval/{name}")[64] == pytest.approx(scores[name], rel=1e-4, abs=1e-6), name
    assert bool(list(CURVES.rglob("label_accuracy.tsv"))) == ("label_accuracy" in scores) == classes


@pytest.mark.usefixtures("clone")
def test_evaluations_change_no_weight_and_a_killed_training_draws_the_same_curves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Killed between two evaluations; the use of codes comes with each validation, as without them."""
    plain = train()
    usage = curve("eval/usage")
    shutil.rmtree("state")
    assert train(SCORED) == plain and curve("eval/usage") == usage and list(usage) == [32, 64]
    assert list(curve("eval/fd")) == [24, 48, 64] and len(set(curve("eval/fd").values())) == 3
    curves = contents(CURVES)
    for path in ("state", "logs", "curves", "models/tokenizer"):
        shutil.rmtree(path)
    loss, seen = VQARRecipe._losses, []

    def killed(self: VQARRecipe, batch: Any, labels: torch.Tensor) -> Any:
        if self.model.training:
            seen.extend(batch.positions.tolist())
            if len(seen) == 40:
                os.kill(os.getpid(), signal.SIGTERM)
        return loss(self, batch, labels)

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(VQARRecipe, "_losses", killed)
        train(SCORED)
    assert len(seen) == 40 and not CURVES.exists()
    assert train(SCORED) == plain and contents(CURVES) == curves


@pytest.mark.usefixtures("clone")
def test_without_evaluations_nothing_of_them_is_opened() -> None:
    for folder in ("models/extractor", "data/reference", "data/catalog"):
        shutil.rmtree(folder)
    train()
    assert not list(CURVES.rglob("fd.tsv"))


@pytest.mark.usefixtures("clone")
def test_an_extractor_of_other_images_or_classes_or_another_reference_is_refused() -> None:
    write_extractor(classes=("bright", "dark"))
    with pytest.raises(ArtifactError, match=r"does not know the labels \['red'\]"):
        train(SCORED)
    write_extractor(shape=(3, 16, 16))
    with pytest.raises(ArtifactError, match=r"trained on images of shape \[3, 16, 16\], and these are \[3, 8, 8\]"):
        train(SCORED)
    write_extractor(classes=(*CLASSES, "more"))
    with pytest.raises(ArtifactError, match="data/reference was made with another extractor than models/extractor"):
        train(SCORED)


@pytest.mark.usefixtures("clone")
def test_scores_know_images_of_the_distribution_asked_for_whoever_makes_which_batch() -> None:
    """Real images of equal classes, though most are dark in the data; and for any number of processes the same."""
    asked = EvaluateGenerator.model_validate({**SCORED, "images": 60, "batch": 7})
    numbers, source = np.arange(60) % 3, Shades(SPEC)
    by_class: dict[str, list[Any]] = {name: [] for name in CLASSES}
    for raw in map(source.read, source.entries(100, 400)):
        by_class[str(raw.label)].append(np.asarray(raw.image).transpose(2, 0, 1))
    real = np.stack([by_class[CLASSES[number]][place // 3] for place, number in enumerate(numbers)])

    def scores(images: NDArray[np.uint8], distribution: str = "balanced", count: int = 1) -> dict[str, float]:
        evaluation = Evaluation.open(asked, (3, 8, 8), CLASSES, distribution)
        assert evaluation is not None
        shares: list[torch.Tensor] = []

        def given(rank: int, gather: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, float]:
            made = lambda starts: (images[start : start + 7] for start in starts)  # noqa: E731
            return evaluation.scores(made, numbers, torch.device("cpu"), rank, count, gather)

        def kept(rows: torch.Tensor) -> torch.Tensor:
            shares.append(rows)
            return torch.rand(60, 3)  # what others made too

        for rank in range(count):
            given(rank, kept)
        return given(0, lambda rows: torch.cat([share for share in shares if len(share)]))

    good, red = scores(real), scores(np.stack(by_class["red"][:1] * 60))
    assert good["fd"] < 0.1 * red["fd"] and good["fd"] < 0.5 * scores(real, "frequency")["fd"]
    assert scores(real, count=4) == good
