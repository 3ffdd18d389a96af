"""From images to an update of the DiT, for latents in each of their forms."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from scipy import ndimage
from torch import nn

from darkroom.artifacts.manifest import ArtifactError
from darkroom.check.check import read_params
from darkroom.data.catalog import load_catalog
from darkroom.data.catalog_writer import write_catalog
from darkroom.data.latent_file import CODEBOOK, FORMS, VIEWS, to_float32
from darkroom.data.latents import LatentShards
from darkroom.data.reader import ImageShards
from darkroom.diffusion.scalers import LatentScaler
from darkroom.errors import DarkroomError
from darkroom.models.generators.captions import Captions
from darkroom.models.generators.data import CaptionedLatents, LabelledLatents
from darkroom.models.generators.dit.config import DiTConfig
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.dit.recipe import DiTRecipe
from darkroom.models.generators.dit.settings import DiTDiffusion, DiTSampling
from darkroom.models.tokenizers.settings import EncodeParams
from darkroom.rng import random_numbers
from darkroom.stages import encode_latents
from darkroom.training.data import StoredLatents, mirrored, with_means
from darkroom.training.loop import seeded, train
from darkroom.training.recipe import Batch
from darkroom.training.start import OutputPaths
from data.making import flip, make_part
from helpers import DIGITS, add_tokenizer, run, training
from models.tokenizers.discrete import SIZE, Patches, write_tokenizer

SAMPLING = DiTSampling(solver="euler", steps=25, guidance=1.5)

VALUES = read_params(DIGITS)


class Gaussians(nn.Module):
    """Its latents are distributions, and it has no codes."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.patches = Patches(side)
        self.latent_shape = self.patches.latent_shape

    def encode(self, images):
        mean, _ = self.patches.encode(images)
        return mean, mean.abs() - 3

    @classmethod
    def from_pretrained(cls, folder: Path) -> "Gaussians":
        return cls(Patches.from_pretrained(folder).side)


def stored(
    form: str, dtype: str = "float32", mirror: bool = False, parts: tuple[str, ...] = ("one",), shift: int = 0
) -> None:
    """Write shards, a catalog, a tokenizer, and run the stage."""
    for number, part in enumerate(parts):
        make_part(Path("data/shards"), part, 30 * number, 30 * number + 30, mirror=mirror)
    Path("data/catalog").mkdir()
    write_catalog(Path("data/catalog"), list(parts))
    if not Path("models/tokenizer").exists():
        write_tokenizer(Patches(6))
    for part in parts:
        encode(part, form, dtype, shift)


def encode(part: str, form: str, dtype: str = "float32", shift: int = 0) -> None:
    changes = {"latents": "codes" if form == "codes" else "continuous", "dtype": dtype, "batch": 4, "shift": shift}
    values = {"run": VALUES["run"], "encode_latents": {**VALUES["encode_latents"], **changes}}
    encode_latents.run(EncodeParams.model_validate(values), part)


@pytest.fixture(params=list(FORMS))
def form(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    name = "Gaussians" if request.param == "distribution" else "Patches"
    add_tokenizer(monkeypatch, "patches", globals()[name])
    labels = property(lambda shards: pa.chunked_array([["1"] * len(shards)]))  # a fifth of the images has none
    monkeypatch.setattr(LatentShards, "label_column", labels)
    return request.param


def recipe(rows: LabelledLatents) -> DiTRecipe:
    with seeded(0):
        model = DiT(DiTConfig(3, 3, 12, 16, 1, 2, 1))
    settings = DiTDiffusion(normalise="channel", time="uniform", time_mean=0.0, time_std=1.0, label_dropout=0.0)
    scaler = LatentScaler(*rows.shards.statistics)
    return DiTRecipe(model, settings, 9, rows, rows, scaler, None, DiTSampling(solver="euler", steps=25, guidance=1.5))


def expected(form: str, pixels: np.ndarray, dtype: str) -> list[np.ndarray]:
    """Return mean and logvar, or x_0 alone, float64, that the tokenizer has for images."""
    tokenizer = (Gaussians if form == "distribution" else Patches)(6)
    images = torch.from_numpy(np.ascontiguousarray(pixels))
    if form == "codes":
        book = tokenizer.codebook.detach().double().numpy()
        return [book[tokenizer.encode_codes(images).numpy()].transpose(0, 3, 1, 2)]
    found = [value for value in tokenizer.encode(images) if value is not None]
    return [value.to(getattr(torch, dtype)).double().numpy() for value in found]


def moved(pixels: np.ndarray, shift: int) -> np.ndarray:
    """Return pixels where they are, and moved left, right, up and down, edges repeated, by SciPy: (5, N, C, H, W)."""
    ways = [(0, 0), (0, -shift), (0, shift), (-shift, 0), (shift, 0)]
    return np.stack([ndimage.shift(pixels, (0, 0, *way), order=0, mode="nearest") for way in ways])


def test_moved_images_are_seen_in_train_alone_and_mirror_images_where_they_may_be(form: str) -> None:
    """Of two parts, one without mirror images: what a training draws, what val has, and which faults are named."""
    stored(form, mirror=True, shift=1)
    make_part(Path("data/shards"), "two", 30, 60)
    encode("two", form, shift=1)
    reader, val = (LatentShards.open_parts(["one", "two"], split) for split in ("train", "val"))
    assert (reader.shift, val.shift) == (1, 0) and reader.mirrors.any() and not reader.mirrors.all()
    rows, positions = list(range(len(reader))), np.arange(len(reader))
    turned = 5 * mirrored(9, reader.mirrors, rows, positions)
    ways = (5 * random_numbers(9, "shift", positions, 0, 1)[1][:, 0]).astype(int)
    for options, view in (({}, turned + ways), ({"mirror": False}, ways), ({"shift": False}, turned)):
        seen = StoredLatents(reader, 9, **options).__getitems__(rows, positions)
        expected = reader.__getitems__(rows, view)
        for name in FORMS[form]:
            np.testing.assert_array_equal(seen[name].numpy(), expected[name])
    captioned = CaptionedLatents(reader, Captions.of(ImageShards.open_parts(["one", "two"], "train")), 9)
    for name, value in reader.__getitems__(rows, ways).items():
        np.testing.assert_array_equal(captioned.__getitems__(rows, positions)[name].numpy(), value)

    path = Path("data/latents/one/train/00000.safetensors")
    flip(path, path.stat().st_size - 1)
    reader = LatentShards.open_parts(["one", "two"], "train")
    last = reader._shards[0].images - 1
    reader.__getitems__([last], np.array([VIEWS.index("_mirror_up")]))
    with pytest.raises(ArtifactError, match=f"{path}: the latent of the image {reader.keys[last]}"):
        reader.__getitems__([last], np.array([VIEWS.index("_mirror_down")]))
    encode("two", form, shift=2)
    with pytest.raises(ArtifactError, match="have different shifts"):
        LatentShards.open_parts(["one", "two"], "train")


@pytest.mark.parametrize(
    ("form", "dtype", "mirror", "shift"),
    [
        *((form, "float32", *view) for form in FORMS for view in ((False, 0), (True, 0), (True, 2))),
        *((form, "bfloat16", True, 2) for form in ("distribution", "point")),  # codes are stored as whole numbers
    ],
    indirect=["form"],
)
def test_the_loss_of_a_dit_is_the_formula_of_the_tokenizers_latents(
    form: str, dtype: str, mirror: bool, shift: int
) -> None:
    """Encoded, stored, read, mirrored, moved, put on the device, normalised by the stored statistics: in float64."""
    stored(form, dtype, mirror, shift=shift)
    images = ImageShards.open_parts(["one"], "train")
    rows = LabelledLatents(LatentShards.open_parts(["one"], "train"), load_catalog(), 9)
    assert (rows.shards.form, rows.shards.mirrors.all()) == (form, mirror)
    order, positions = list(range(len(rows)))[::-1], np.arange(50, 50 + len(rows))
    data = rows.__getitems__(order, positions)
    assert list(data) == [*FORMS[form], "labels"]
    data = with_means(data, rows.codebook)
    pixels = images.__getitems__(order)
    turned = mirrored(9, images.mirrors, order, positions)
    assert turned.any() == mirror
    pixels[turned] = pixels[turned][..., ::-1]
    if shift:
        ways = (5 * random_numbers(9, "shift", positions, 0, 1)[1][:, 0]).astype(int)
        assert set(ways) == set(range(5))
        pixels = moved(pixels, shift)[ways, np.arange(len(ways))]
    mean, *logvar = expected(form, pixels, dtype)

    both = images.__getitems__(range(len(images)))
    both = np.concatenate([both, both[..., ::-1]]) if mirror else both
    both = np.concatenate([*moved(both, shift)]) if shift else both
    all_means, *all_logvars = expected(form, both, dtype)
    variance = all_means.var(axis=(0, 2, 3)) + sum(np.exp(each).mean(axis=(0, 2, 3)) for each in all_logvars)
    found = rows.shards.statistics
    np.testing.assert_allclose(found.mean, all_means.mean(axis=(0, 2, 3)), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.std, np.sqrt(variance), rtol=1e-9)

    size = mean[0].size
    normals = random_numbers(9, "dit/train", positions, 2 * size + 1, 2)[0].astype(np.float64)
    posterior, noise = (normals[:, at : at + size].reshape(mean.shape) for at in (0, size))
    z = mean + np.exp(logvar[0] / 2) * posterior if logvar else mean
    x0 = (z - np.array(found.mean)[:, None, None]) / np.array(found.std)[:, None, None]
    tensors = {name: torch.as_tensor(value) for name, value in data.items()}
    loss = recipe(rows).loss(Batch(positions, tensors))["loss"].item()
    assert loss == pytest.approx(((noise - x0) ** 2).mean(), rel=1e-5)  # an untrained DiT answers 0


@pytest.mark.parametrize(
    ("form", "precision"), [*((form, "fp32") for form in FORMS), ("distribution", "bf16")], indirect=["form"]
)
def test_a_dit_trains_on_latents_in_any_form(
    form: str, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(form, "bfloat16", mirror=True)
    rows = LabelledLatents(LatentShards.open_parts(["one"], "train"), load_catalog(), 0)
    made = recipe(rows)
    monkeypatch.setattr(made, "sample_evolution", lambda: None)  # it has no tokenizer
    before = {name: value.clone() for name, value in made.model.state_dict().items()}
    places = OutputPaths(tmp_path / "state", tmp_path / "curves", tmp_path / "logs")
    train(made, training(images=24, precision=precision), run(), places)
    after = made.model.state_dict()
    assert all(value.isfinite().all() for value in after.values())
    assert not torch.equal(after["head.linear.weight"], before["head.linear.weight"])


def test_the_manifest_says_which_form(form: str) -> None:
    stored(form, "bfloat16")
    manifest = json.loads(Path("data/latents/one/manifest.json").read_text())
    dtype = "uint16" if form == "codes" else "bfloat16"
    assert manifest["latent"] == {"form": form, "shape": [3, 3, 3], "dtype": dtype}
    assert (manifest["codebook"] is not None) == (Path("data/latents/one") / CODEBOOK).exists() == (form == "codes")


@pytest.mark.parametrize("form", ["point"], indirect=True)
def test_parts_in_different_forms_are_refused(form: str) -> None:
    stored(form, parts=("one", "two"))
    encode("two", "codes")
    with pytest.raises(DarkroomError, match=r"`one` and `two` have different forms \(point and codes\)"):
        LatentShards.open_parts(["one", "two"], "train")


# --- codes ---


@pytest.fixture
def codes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    add_tokenizer(monkeypatch, "patches", Patches)


def test_codes_are_two_bytes_and_their_codebook_lies_beside_them(codes: None) -> None:
    from safetensors.torch import load_file

    stored("codes", mirror=True)
    tensors = load_file("data/latents/one/train/00000.safetensors")
    assert {name: value.dtype for name, value in tensors.items()} == dict.fromkeys(
        ("codes", "codes_mirror"), torch.uint16
    )
    images = torch.from_numpy(ImageShards.open_parts(["one"], "train").__getitems__(range(7)))
    assert (tensors["codes"].int() == Patches(6).encode_codes(images)).all()
    assert (tensors["codes_mirror"].int() == Patches(6).encode_codes(images.flip(3))).all()
    book = load_file(f"data/latents/one/{CODEBOOK}")["codebook"]
    assert torch.equal(book, Patches(6).codebook) and len(book) == SIZE


def test_more_codes_than_two_bytes_hold_are_stored_in_four(codes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code 65536 and above would otherwise be another, small code."""
    write_tokenizer(Patches(6, size=2**16 + 40))
    last = 2**16 + 39
    monkeypatch.setattr(Patches, "_nearest", lambda self, x: torch.full((len(x), 9), last))
    stored("codes")
    reader = LatentShards.open_parts(["one"], "train")
    found = reader.__getitems__([0])["codes"]
    assert found.dtype == np.int32 and (found == last).all()


@pytest.mark.parametrize("code", [-1, SIZE])
def test_a_code_that_stands_for_nothing_is_refused(codes: None, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Patches, "_nearest", lambda self, x: torch.full((len(x), 9), code))
    with pytest.raises(DarkroomError, match=rf"has the codes {code} to {code}, but the codebook has 0 to {SIZE - 1}"):
        stored("codes")
    assert not Path("data/latents/one").exists()


def test_a_codebook_of_another_width_is_refused(codes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Patches, "codebook", torch.zeros(SIZE, 5))
    with pytest.raises(
        DarkroomError, match=r"codebook of the tokenizer is \(7, 5\), but needs finite vectors of 3 channels"
    ):
        stored("codes")


def test_a_tokenizer_without_codes_is_refused(codes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    add_tokenizer(monkeypatch, "patches", Gaussians)
    with pytest.raises(DarkroomError, match=r"`encode_latents\.latents` is codes, but the tokenizer .* has none"):
        stored("codes")


def test_a_damaged_codebook_is_found_on_opening(codes: None) -> None:
    stored("codes")
    path = Path("data/latents/one") / CODEBOOK
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    with pytest.raises(DarkroomError, match=f"{path} is corrupted"):
        LatentShards.open_parts(["one"], "train")


def test_parts_of_different_codebooks_are_refused(codes: None) -> None:
    from darkroom.artifacts.manifest import read_manifest, sha256_file, write_manifest
    from darkroom.data.latent_file import write_codebook

    stored("codes", parts=("one", "two"))
    folder = Path("data/latents/two")
    write_codebook(folder, np.ones((SIZE, 3), np.float32))
    manifest = read_manifest(folder, "latents")
    manifest["codebook"]["sha256"] = sha256_file(folder / CODEBOOK)
    metadata = {key: value for key, value in manifest.items() if key not in ("kind", "format", "seal")}
    write_manifest(folder, "latents", **metadata)
    with pytest.raises(DarkroomError, match="`one` and `two` have different codebooks"):
        LatentShards.open_parts(["one", "two"], "train")


def test_a_flipped_code_is_found_when_it_is_read(codes: None) -> None:
    stored("codes")
    path = Path("data/latents/one/train/00000.safetensors")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    reader = LatentShards.open_parts(["one"], "train")
    reader.__getitems__([0])
    with pytest.raises(DarkroomError, match="is corrupted"):
        reader.__getitems__([6])


def test_a_channel_that_never_changes_is_shifted_and_not_scaled(codes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """All images have the same code: the variance is 0 but for rounding, and dividing by that gives anything."""
    monkeypatch.setattr(Patches, "_nearest", lambda self, x: torch.full((len(x), 9), 2))
    stored("codes")
    reader = LatentShards.open_parts(["one"], "train")
    assert reader.statistics.std == [0.0, 0.0, 0.0]
    latent = torch.from_numpy(reader.codebook[2]).view(1, 3, 1, 1)
    scaler = LatentScaler(*reader.statistics)
    assert scaler(latent).abs().max() < 1e-6 and torch.allclose(scaler.invert(scaler(latent)), latent)


@pytest.mark.parametrize("form", ["distribution", "point"], indirect=True)
def test_stored_values_are_widened_as_they_were_rounded(form: str) -> None:
    stored(form, "bfloat16")
    reader = LatentShards.open_parts(["one"], "train")
    pixels = ImageShards.open_parts(["one"], "train").__getitems__(range(len(reader)))
    for name, value in zip(FORMS[form], expected(form, pixels, "bfloat16"), strict=True):
        assert (to_float32(reader.__getitems__(range(len(reader)))[name]) == value).all()
