"""Bits per dim of stored latents: terms that add up, of noise that follows from the row, and what has no bound."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from darkroom.artifacts.manifest import file_hashes, manifest_hash, write_manifest
from darkroom.data.catalog import load_catalog
from darkroom.data.draw import drawn
from darkroom.data.latents import LatentShards
from darkroom.diffusion.bound import bits_per_dim, log_variance
from darkroom.diffusion.objectives import stored_objective
from darkroom.diffusion.scalers import LatentScaler
from darkroom.errors import DarkroomError
from darkroom.models.generators.bits import measure_bits
from darkroom.models.generators.dit.config import DiTConfig
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.sample_settings import BitsSettings
from darkroom.rng import normal
from darkroom.terminal import terminal as progress
from models.generators.small_published import write_clone

FOLDER, CPU = Path("models/generator"), torch.device("cpu")
GAUSSIAN = {
    "objective": "gaussian",
    "prediction": {
        "schedule": "linear",
        "timesteps": 20,
        "target": "eps",
        "variance": "learned_range",
        "variance_range": "linear",
    },
}


@pytest.fixture
def classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Write latents, and a generator of them that predicts something."""
    monkeypatch.chdir(tmp_path)
    names = write_clone()
    write_generator(names, **GAUSSIAN)
    return names


def write_generator(classes: list[str], **metadata: Any) -> None:
    latents = LatentShards.open_parts(["one"], "test")
    torch.manual_seed(0)
    model = DiT(DiTConfig(latents.shape[0], latents.shape[1], len(classes), 16, 1, 2, 2, learned_variance=True))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    model.save_pretrained(FOLDER)
    scale = {"latent_mean": [0.1] * latents.shape[0], "latent_std": [0.8] * latents.shape[0]}
    files = file_hashes(FOLDER)
    write_manifest(
        FOLDER,
        "generator",
        generator_kind="dit",
        classes=classes,
        tokenizer=latents.tokenizer,
        **scale,
        **metadata,
        files=files,
    )


def settings(**changes: Any) -> BitsSettings:
    return BitsSettings(generator=str(FOLDER), latents="data/latents", **changes)


def measured(**changes: Any) -> tuple[dict[str, float], list[str], int]:
    return measure_bits(settings(**changes), manifest_hash(FOLDER), CPU)


def test_terms_add_up_and_are_those_of_the_bound(classes: list[str]) -> None:
    scores, rows, count = measured(split="train", images=3, batch=2)
    assert count == 3 and [int(row.split("\t")[0]) for row in rows] == list(range(20))
    parts = scores["bits_prior"] + scores["bits_steps"] + scores["bits_decoder"]
    assert scores["bits_per_dim"] == pytest.approx(parts)
    terms = [float(row.split("\t")[1]) for row in rows]
    assert terms[0] == pytest.approx(scores["bits_decoder"], rel=1e-4)
    assert sum(terms[1:]) == pytest.approx(scores["bits_steps"], rel=1e-4) and scores["bits_per_dim_se"] > 0

    # The bound itself, of the row that is drawn first.
    latents = LatentShards.open_parts(["one"], "train")
    row = drawn(len(latents), 1)[0]
    stored = {name: torch.from_numpy(value) for name, value in latents.__getitems__([row]).items()}

    def noise(name: object) -> torch.Tensor:
        return torch.from_numpy(normal(0, f"bits/{name}", [row], latents.shape))

    z = stored["mean"] + (0.5 * stored["logvar"]).exp() * noise("posterior")
    facts = json.loads((FOLDER / "manifest.json").read_text())
    model, objective = DiT.from_pretrained(FOLDER), stored_objective(facts, "flow")
    label = torch.tensor([load_catalog(shards=None).number(latents.label_column[row].as_py())])

    def predict(x: torch.Tensor, t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            found = objective.denoised(model(x, t, label), x, t)
        return found.x0, log_variance("learned_range", found.variance, t, objective.schedule, 4)  # type: ignore[attr-defined]

    scaler = LatentScaler(facts["latent_mean"], facts["latent_std"])
    truth = bits_per_dim(predict, scaler(z), noise, objective.schedule)  # type: ignore[attr-defined]
    alone, _, _ = measured(split="train", images=1)
    assert alone["bits_per_dim"] == pytest.approx(float(truth.total), rel=1e-5)
    assert "bits_per_dim_se" not in alone  # one image has no spread


def test_a_latents_bits_depend_on_no_batch(classes: list[str]) -> None:
    whole, other = (measured(split="train", images=5, batch=batch)[0] for batch in (5, 2))
    assert whole == pytest.approx(other, rel=1e-5)
    assert whole != pytest.approx(measured(split="train", images=5, seed=1)[0], rel=1e-5)


def test_progress_counts_latents(
    classes: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0)
    measured(split="train", images=5, batch=2)
    assert re.findall(r"bits: (.*?) images,", capsys.readouterr().out) == ["2 of 5", "4 of 5"]


def test_another_generator_than_the_samples_is_refused(classes: list[str]) -> None:
    with pytest.raises(DarkroomError, match="did not make samples/generator"):
        measure_bits(settings(), "x", CPU)
    write_generator(["a"], **GAUSSIAN)
    with pytest.raises(DarkroomError, match="trained on other latents or classes"):
        measured()


def test_both_folders_go_together() -> None:
    with pytest.raises(ValueError, match=r"generator .* and latents .* must be set together"):
        BitsSettings(generator="models/generator")
