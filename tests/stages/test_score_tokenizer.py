"""The stage `score_tokenizer`, with and without codes, LPIPS and Inception."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from darkroom.artifacts.manifest import file_hashes, read_manifest, write_manifest
from darkroom.check.check import read_params
from darkroom.data import catalog_writer
from darkroom.data.catalog_writer import write_catalog
from darkroom.data.draw import drawn
from darkroom.data.images import ImageSpec
from darkroom.data.reader import ImageShards
from darkroom.errors import DarkroomError
from darkroom.metrics.image import psnr
from darkroom.models.evaluators.extractor import Classifier
from darkroom.models.evaluators.load import Extractor
from darkroom.models.tokenizers.perceptual import load_perceptual
from darkroom.models.tokenizers.protocol import to_network
from darkroom.models.tokenizers.settings import ScoreParams
from darkroom.report.inputs import read_scored
from darkroom.stages import score_tokenizer
from data.frames import LEAKING, TWINS
from data.making import make_part
from helpers import DIGITS, add_tokenizer
from models.tokenizers.discrete import SIZE, Patches, write_tokenizer

VALUES = read_params(DIGITS)
SIDE = 16
CODES = {
    *(
        f"{name}{split}"
        for name in ("codebook_usage", "codebook_perplexity", "dead_codes")
        for split in ("", "_scored")
    ),
    *("bits_per_pixel", "bits_per_pixel_entropy"),
}
ALWAYS = {"psnr", "psnr_se", "ssim", "ssim_se", "rfd"}


class Continuous(nn.Module):
    """The same tokenizer, but of its means, and without codes."""

    def __init__(self, patches: Patches) -> None:
        super().__init__()
        self.patches, self.latent_shape = patches, patches.latent_shape

    def reconstruct(self, images):
        means, _ = self.patches.encode(images)
        return ((means.repeat_interleave(2, 2).repeat_interleave(2, 3) + 1) * 127.5).round().to(torch.uint8)

    @classmethod
    def from_pretrained(cls, folder: Path) -> "Continuous":
        return cls(Patches.from_pretrained(folder))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the stage reads, in the working folder."""
    enter(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, float], dict[str, Any]]:
    """A folder in which the stage has run, its scores and its card."""
    folder = tmp_path_factory.mktemp("scored")
    with pytest.MonkeyPatch.context() as patch:
        enter(folder, patch)
        return folder, *score()


@pytest.fixture
def scored(whole: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, float], dict[str, Any]]:
    """Its scores and its card, and the folder as the working folder."""
    folder, *found = whole
    monkeypatch.chdir(folder)
    return tuple(found)


def enter(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write shards of 40 images, catalog, an untrained judge and a discrete tokenizer into a folder, and go there."""
    monkeypatch.chdir(folder)
    add_tokenizer(monkeypatch, "patches", Patches)
    make_part(Path("data/shards"), "one", 0, 40, spec=ImageSpec(SIDE, "RGB", "png"))
    Path("data/catalog").mkdir()
    write_catalog(Path("data/catalog"), ["one"])
    write_tokenizer(Patches(SIDE))
    judge = Path("models/extractor")
    judge.mkdir()
    torch.manual_seed(0)
    Classifier(3, 4, [8, 8], 6, 0.0).save_pretrained(judge)
    files = file_hashes(judge)
    write_manifest(judge, "extractor", image_shape=[3, SIDE, SIDE], classes=list("0123"), files=files)


def score(extractors: tuple[str, ...] = ("in_domain",), **changes: Any) -> tuple[dict[str, float], dict[str, Any]]:
    """Run the stage and return scores and card."""
    values = {
        "run": {**VALUES["run"], "device": "cpu"},
        "score_tokenizer": {**VALUES["score_tokenizer"], "threads": 1, "batch": 8, "grid_images": 4, **changes},
        "reference_stats": {"extractors": extractors, "inception": VALUES["reference_stats"]["inception"]},
    }
    score_tokenizer.run(ScoreParams.model_validate(values))
    read_scored("tokenizer")  # the page can explain every one of them
    return tuple(json.loads(Path(f"{folder}/tokenizer.json").read_text()) for folder in ("metrics", "cards"))


def split(name: str) -> torch.Tensor:
    shards = ImageShards.open_parts(["one"], name)
    return torch.from_numpy(shards.__getitems__(range(len(shards))))


def test_codes_are_counted_over_the_train_and_the_scored_split(scored: Any) -> None:
    scores, card = scored
    assert set(scores) == ALWAYS | CODES
    images = split("test")
    decoded = Patches(SIDE).decode_codes(Patches(SIDE).encode_codes(images))  # reconstructions go by way of the codes
    assert scores["psnr"] == pytest.approx(float(psnr(images, decoded).mean()), rel=1e-12)
    for name, suffix in (("train", ""), ("test", "_scored")):
        counts = np.bincount(Patches(SIDE).encode_codes(split(name)).flatten(), minlength=SIZE)
        p = counts[counts > 0] / counts.sum()
        assert scores[f"codebook_usage{suffix}"] == (counts > 0).mean()
        assert scores[f"dead_codes{suffix}"] == (counts == 0).sum()
        assert scores[f"codebook_perplexity{suffix}"] == pytest.approx(np.exp(-(p * np.log(p)).sum()))
    assert scores["bits_per_pixel"] == pytest.approx(np.log2(SIZE) / 4)  # a code for 2 x 2 pixels
    assert scores["bits_per_pixel_entropy"] == pytest.approx(np.log2(scores["codebook_perplexity_scored"]) / 4)
    table = [line.split("\t") for line in Path("samples/reconstructions/codes.tsv").read_text().splitlines()[1:]]
    assert [int(row[3]) for row in sorted(table, key=lambda row: int(row[1]))] == counts.tolist()
    assert read_manifest(Path("samples/reconstructions"), "reconstructions")["codes"] == SIZE
    assert any("ms_ssim is left out: its coarsest scale needs 176 pixels a side, not 16" in n for n in card["notes"])


def test_the_card_says_how_near_held_out_images_are(project: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_writer, "measure_leakage", lambda *_: LEAKING)
    write_catalog(Path("data/catalog"), ["one"])
    card = score()[1]
    assert card["baselines"]["leakage"] == LEAKING and TWINS in card["notes"]


def test_a_continuous_tokenizer_keeps_its_metrics(project: None, monkeypatch: pytest.MonkeyPatch) -> None:
    add_tokenizer(monkeypatch, "patches", Continuous)
    scores, card = score()
    assert set(scores) == ALWAYS and "lpips" not in card
    assert Path("samples/reconstructions/codes.tsv").read_text() == "rank\tcode\ttrain\tscored\n"
    assert read_manifest(Path("samples/reconstructions"), "reconstructions")["codes"] == 0


def test_the_grid_is_original_reconstruction_error(scored: Any) -> None:
    with Image.open("samples/reconstructions/grid.png") as grid:
        pixels = np.asarray(grid.convert("RGB")).astype(int)
    one = [
        pixels[top : top + 96 : 6, 2 : 2 + 96 : 6]
        for top in (2 + row * 98 for row in range(3))  # 16 pixels, drawn at 96
    ]
    first = split("test")[drawn(len(split("test")), 1)]
    assert (one[0] == first[0].permute(1, 2, 0).numpy()).all()
    assert (one[1] == Patches(SIDE).reconstruct(first)[0].permute(1, 2, 0).numpy()).all()
    assert (one[2] == np.minimum(255, 4 * np.abs(one[0] - one[1]))).all()
    assert len(pixels) == 3 * 98 + 2  # four images in one row of each


def test_the_grid_has_as_many_images_as_asked(project: None) -> None:
    score(grid_images=3)
    with Image.open("samples/reconstructions/grid.png") as grid:
        assert grid.size == (3 * 98 + 2, 3 * 98 + 2)


def test_lpips_is_measured_by_the_weights_that_are_named(project: None) -> None:
    from torchvision.models.vgg import cfgs, make_layers

    torch.manual_seed(0)
    state = make_layers(cfgs["D"]).state_dict()
    torch.save({f"features.{name}": value for name, value in state.items()}, "vgg.pth")
    scores, card = score(lpips="lpips", vgg16="vgg.pth")
    images = split("test")
    network = load_perceptual("lpips", Path("vgg.pth"), (3, SIDE, SIDE))
    each = network(to_network(images), to_network(Patches(SIDE).reconstruct(images))).double()
    assert scores["lpips"] == pytest.approx(float(each.mean()), rel=1e-5)
    assert scores["lpips_se"] == pytest.approx(float(each.std()) / len(each) ** 0.5, rel=1e-4)
    assert len(card["protocol"]["lpips"]) == 64 and "lpips" in card["formulas"]


def test_missing_weights_of_lpips_are_told_before_any_work(project: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageShards, "open_parts", lambda *_: pytest.fail("work"))
    with pytest.raises(DarkroomError, match=r"`score_tokenizer\.vgg16` in params.yaml names no/vgg.pth"):
        score(lpips="lpips", vgg16="no/vgg.pth")


def test_inceptions_distance_is_called_rfid(project: None, monkeypatch: pytest.MonkeyPatch) -> None:
    class Colours:
        """Three features, in Inception's place."""

        def features(self, images: torch.Tensor) -> torch.Tensor:
            return images.float().mean((2, 3))

        def to(self, device: torch.device) -> "Colours":
            return self

        def eval(self) -> "Colours":
            return self

    monkeypatch.setattr(score_tokenizer, "open_extractor", lambda name, *_: Extractor(Colours(), "5" * 64, 3))
    scores, card = score(("in_domain", "inception"))
    assert set(scores) == ALWAYS | CODES | {"rfid"}
    of_cards = card["protocol"]["extractors"]
    assert (of_cards["in_domain"]["resize"], of_cards["inception"]["resize"]) == ("none", "none")
    assert of_cards["inception"]["sha256"] == "5" * 64 and "rfid" in card["formulas"]
    images = split("test")
    one, other = (x.float().mean((2, 3)).double().numpy() for x in (images, Patches(SIDE).reconstruct(images)))
    s1, s2 = np.cov(one.T), np.cov(other.T)
    root = np.sqrt(np.linalg.eigvals(s1 @ s2).real.clip(min=0)).sum()
    expected = ((one.mean(0) - other.mean(0)) ** 2).sum() + np.trace(s1) + np.trace(s2) - 2 * root
    assert scores["rfid"] == pytest.approx(expected, rel=1e-6)
