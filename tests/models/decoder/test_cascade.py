"""A cascade of tiny U-Nets in a folder, opened and sampled."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from darkroom.artifacts.manifest import ArtifactError, file_hashes, write_manifest
from darkroom.models.decoder.cascade import Cascade, Decoder
from darkroom.models.decoder.sample import SampleRequest
from darkroom.models.decoder.settings import UNetSampling
from darkroom.models.decoder.variations import inpainted, interpolations, spherical, variations
from models.decoder.small_unets import TOLD, normals, unet

HOW: dict[str, Any] = {
    "solver": "ddim",
    "steps": 3,
    "eta": 0.0,
    "guidance": 2.0,
    "threshold": "clip",
    "percentile": 0.95,
    "embedding_noise": 0.0,
    "low_noise": 0.1,
}
MEANS = {"schedule": "cosine", "target": "x0", "variance": "fixed_small", "variance_range": "linear"}


def write(root: Path, name: str, network: torch.nn.Module | None, **metadata: Any) -> None:
    folder = root / name
    folder.mkdir(parents=True)
    if network is None:
        write_manifest(folder, "decoder", trained=False, reason="so", files={})
        return
    for where in (folder, folder / "raw"):
        network.save_pretrained(where)  # type: ignore[operator]
    image = {"size": 16, "channels": "L", "format": "png"}
    told = {
        "clip": "c" * 64,
        "normalised": True,
        "embedding_mean": [0.0] * 6,
        "embedding_std": [0.5] * 6,
        "tokenizer": None,
    }
    plain = {"low_size": None, "low_downsample": "area"}
    write_manifest(
        folder,
        "decoder",
        **{"trained": True, "timesteps": 20, "prediction": MEANS, "image": image, **told, **plain, **metadata},
        files=file_hashes(folder),
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path, "base", unet(**TOLD))
    up = unet(seed=1, size=16, low=True, low_noise=True)
    write(tmp_path, "up", up, clip=None, low_size=8)
    return tmp_path


def decoder(root: Path, names: tuple[str, ...] = ("up", "base"), batch: int = 2, **changes: Any) -> Decoder:
    cascade = Cascade.open(names, "ema", root)
    sampling = {stage.name: UNetSampling(**{**HOW, **changes}) for stage in cascade.stages}
    return Decoder(cascade, sampling, 0, batch)


def made(root: Path, request: SampleRequest, **changes: Any) -> torch.Tensor:
    return torch.cat(list(decoder(root, **changes).images(request)))


def test_from_embeddings_to_images_of_the_datas_size(root: Path) -> None:
    found = made(root, SampleRequest([0, 1, 2], normals(0, 3, 6)))
    assert found.shape == (3, 1, 16, 16) and found.dtype == torch.uint8
    assert [stage.name for stage in Cascade.open(("up", "base"), "raw", root).stages] == ["base", "up"]


def test_an_image_depends_on_its_number_alone(root: Path) -> None:
    image = normals(0, 3, 6)
    all_three = made(root, SampleRequest([0, 1, 2], image), solver="ddpm")
    assert torch.equal(all_three[2:], made(root, SampleRequest([2], image[2:]), solver="ddpm"))
    assert not torch.equal(all_three[2:], made(root, SampleRequest([5], image[2:]), solver="ddpm"))


def test_what_is_asked_for_reaches_the_images(root: Path) -> None:
    """DALLE2-pytorch takes a guidance for its grids and forgets it."""
    request = SampleRequest([0, 1], 3 * normals(0, 2, 6))
    wild = {"guidance": 6.0}  # so that a threshold matters
    expected = made(root, request, **wild)
    others = {"guidance": 1.0, "solver": "dpm", "steps": 5, "threshold": "dynamic", "low_noise": 0.9}
    for key, other in others.items():
        assert not torch.equal(expected, made(root, request, **{**wild, key: other})), key


def test_each_unet_follows_its_own_objective(tmp_path: Path) -> None:
    """A U-Net of flows below one of Gaussian diffusion: the manifests say which is which."""
    write(tmp_path, "base", unet(**TOLD), objective="flow", prediction={})
    write(tmp_path, "up", unet(seed=1, size=16, low=True), clip=None, low_size=8)
    cascade = Cascade.open(("base", "up"), "ema", tmp_path)
    flow, gaussian = UNetSampling(**{**HOW, "solver": "heun"}), UNetSampling(**HOW)
    request = SampleRequest([0, 1], normals(0, 2, 6))
    found = cascade.sample(request, {"base": flow, "up": gaussian}, 0, torch.device("cpu"))
    assert found.shape == (2, 1, 16, 16) and found.abs().max() <= 1
    assert [stage.objective.duration for stage in cascade.stages] == [1.0, 20]


def test_guidance_of_one_unet_only(root: Path) -> None:
    cascade = Cascade.open(("base", "up"), "ema", root)
    request = SampleRequest([0, 1], normals(0, 2, 6))
    plain = UNetSampling(**HOW)
    strong = UNetSampling(**{**HOW, "guidance": 5.0})
    device = torch.device("cpu")
    one = cascade.sample(request, {"base": plain, "up": plain}, 0, device)
    assert not torch.equal(one, cascade.sample(request, {"base": strong, "up": plain}, 0, device))
    assert torch.equal(one, cascade.sample(request, {"base": plain, "up": strong}, 0, device))  # it is told nothing


def test_the_first_trained_unet_enlarges_real_images(tmp_path: Path) -> None:
    write(tmp_path, "base", None)
    write(tmp_path, "up", unet(seed=1, size=16, low=True), clip=None, low_size=8)
    found = decoder(tmp_path, ("base", "up"))
    assert found.cascade.low_size == 8
    real = torch.arange(2 * 256, dtype=torch.uint8).reshape(2, 1, 16, 16)
    low = found.low(real)
    expected = torch.nn.functional.avg_pool2d(real.double() / 127.5 - 1, 2)
    torch.testing.assert_close(low.double(), expected, atol=1e-6, rtol=0)  # type: ignore[union-attr]
    assert torch.cat(list(found.images(SampleRequest([0, 1], low=low)))).shape == (2, 1, 16, 16)


def test_without_its_last_unet_images_are_enlarged_plainly(tmp_path: Path) -> None:
    write(tmp_path, "base", unet(**TOLD))
    write(tmp_path, "up", None)
    found = torch.cat(list(decoder(tmp_path, ("base", "up")).images(SampleRequest([0], normals(0, 1, 6)))))
    assert torch.equal(found[..., ::2, ::2], found[..., 1::2, 1::2])


def test_refusals_name_the_unet(tmp_path: Path) -> None:
    write(tmp_path, "base", None)
    with pytest.raises(ArtifactError, match=r"no U-Net in .* is trained"):
        Cascade.open(("base",), "ema", tmp_path)
    write(tmp_path, "small", unet(**TOLD))
    write(tmp_path, "far", unet(size=16, low=True), clip=None, low_size=4)
    with pytest.raises(ArtifactError, match="`far` has low_size 4, but `small` makes images of 8 pixels"):
        Cascade.open(("small", "far"), "ema", tmp_path)
    write(tmp_path, "near", unet(size=16, low=True, **TOLD), clip="d" * 64, low_size=8)
    with pytest.raises(ArtifactError, match="different CLIPs"):
        Cascade.open(("small", "near"), "ema", tmp_path)
    write(tmp_path, "large", unet(size=16, **TOLD))
    with pytest.raises(ArtifactError, match="`large` has low_size None, but `small` makes images of 8 pixels"):
        Cascade.open(("large", "small"), "ema", tmp_path)


def test_unets_of_embeddings_that_are_normalised_otherwise_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "base", unet(**TOLD))
    write(tmp_path, "up", unet(size=16, low=True, **TOLD), low_size=8, normalised=False)
    with pytest.raises(ArtifactError, match="only some of the U-Nets in "):
        Cascade.open(("up", "base"), "ema", tmp_path)


def test_the_arc_between_two_embeddings() -> None:
    u, v = torch.tensor([2.0, 0.0]), torch.tensor([0.0, 4.0])
    found = spherical(u, v, torch.tensor([0.0, 0.5, 1.0]))
    torch.testing.assert_close(found, torch.tensor([[2.0, 0.0], [3 * 0.5**0.5, 3 * 0.5**0.5], [0.0, 4.0]]))
    torch.testing.assert_close(spherical(u, u, torch.tensor([0.3])), u[None])
    assert spherical(u, -u, torch.tensor([0.0, 0.3, 1.0])).isfinite().all()
    assert spherical(u, torch.zeros_like(u), torch.tensor([0.5])).isfinite().all()


def test_pictures(root: Path) -> None:
    found = decoder(root)
    real, image = np.arange(4 * 256, dtype=np.uint8).reshape(4, 1, 16, 16), normals(0, 4, 6)
    rows = variations(found, real, image, None).reshape(4, 9, 1, 16, 16)
    assert np.array_equal(rows[:, 0], real)
    assert len(np.unique(rows[0], axis=0)) == 9
    rows = interpolations(found, real, image, None).reshape(2, 10, 1, 16, 16)
    assert np.array_equal(rows[:, 0], real[0::2]) and np.array_equal(rows[:, -1], real[1::2])
    end = torch.cat(list(found.images(SampleRequest([0], image[1:2]))))
    assert np.array_equal(rows[0, -2], end[0].numpy())  # the end of the arc is the other embedding
    rows = inpainted(found, real, image, None, 2).reshape(4, 3, 1, 16, 16)
    assert np.array_equal(rows[:, 0], real)
    kept = np.ones((16, 16), dtype=bool)
    kept[4:12, 4:12] = False
    assert (rows[:, 1, 0][:, ~kept] == 128).all()
    assert np.array_equal(rows[:, 2, 0][:, kept], real[:, 0][:, kept])
    assert not np.array_equal(rows[:, 2, 0][:, ~kept], real[:, 0][:, ~kept])


@pytest.mark.parametrize("base", [False, True])
def test_what_is_to_be_filled_in_is_not_told(tmp_path: Path, base: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither to a first U-Net that enlarges nor by a tokenizer, each of whose latents may know of all pixels."""
    write(tmp_path, "base", unet(**TOLD) if base else None)
    write(tmp_path, "up", unet(seed=1, size=16, low=True), clip=None, low_size=8)
    found, image = decoder(tmp_path, ("base", "up")), normals(0, 2, 6)
    monkeypatch.setattr(found, "space", lambda pixels: pixels / 127.5 - 2 + pixels.float().mean() / 256)
    real = np.arange(2 * 256, dtype=np.uint8).reshape(2, 1, 16, 16)
    other_inside, other_outside = real.copy(), real.copy()
    other_inside[..., 4:12, 4:12] //= 2
    other_outside[..., :2, :] ^= 255
    made = inpainted(found, real, image, None, 2)
    assert np.array_equal(made[1::3], inpainted(found, other_inside, image, None, 2)[1::3])
    assert np.array_equal(made[2::3], inpainted(found, other_inside, image, None, 2)[2::3])
    assert not np.array_equal(made[2::3], inpainted(found, other_outside, image, None, 2)[2::3])


def test_averaged_and_raw_weights_are_opened_each_from_its_folder(root: Path) -> None:
    unet(seed=7, **TOLD).save_pretrained(root / "base" / "raw")
    manifest = json.loads((root / "base/manifest.json").read_text())
    facts = {name: value for name, value in manifest.items() if name not in ("kind", "format_version", "files")}
    write_manifest(root / "base", "decoder", **facts, files=file_hashes(root / "base"))
    for weights, seed in (("ema", 0), ("raw", 7)):
        opened = Cascade.open(["base"], weights, root).stages[0].network.state_dict()  # type: ignore[arg-type]
        expected = unet(seed=seed, **TOLD).state_dict()
        assert all(torch.equal(value, expected[name]) for name, value in opened.items())
