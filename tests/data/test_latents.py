import hashlib
import multiprocessing
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darkroom.artifacts.manifest import ArtifactError
from darkroom.data import latent_writer
from darkroom.data.latent_file import VIEWS, map_latent_shard, to_bfloat16, to_float32, write_latent_shard
from darkroom.data.latents import LatentShards
from darkroom.data.reader import ImageShards
from darkroom.errors import DarkroomError
from data.making import LATENT, contents, flip, linear_encode, make_latents, make_part

PARTS = ["second", "first"]


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def dtype(request: pytest.FixtureRequest) -> str:
    return request.param


in_float32 = pytest.mark.parametrize("dtype", ["float32"], indirect=True)  # where rounding changes nothing


@pytest.fixture(scope="module")
def template(parts: Path, dtype: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("latents")
    for part in PARTS:
        make_latents(parts, folder, part, dtype)
    return folder


@pytest.fixture
def latents(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "latents")


def stored(images: np.ndarray, dtype: str) -> dict[str, np.ndarray]:
    torch = pytest.importorskip("torch")
    pairs = zip(("mean", "logvar"), linear_encode(images), strict=True)
    return {name: torch.from_numpy(value).to(getattr(torch, dtype)).float().numpy() for name, value in pairs}


def test_row_i_is_the_latent_of_image_i(root: Path, latents: Path, dtype: str) -> None:
    for split in ("train", "val", "test"):
        images = ImageShards.open_parts(PARTS, split, root)
        reader = LatentShards.open_parts(PARTS, split, latents)
        assert (len(reader), reader.keys, reader.labels) == (len(images), images.keys, images.labels)
        assert reader.shape == (2, 3, 3)
        rows = np.random.default_rng(0).permutation(len(images))
        found, expected = reader.__getitems__(rows), stored(images.__getitems__(rows), dtype)
        for name in ("mean", "logvar"):
            assert found[name].dtype == {"float32": np.float32, "bfloat16": np.uint16}[dtype]
            assert (to_float32(found[name]) == expected[name]).all()


def test_statistics_are_those_of_the_latent_distribution(root: Path, latents: Path, dtype: str) -> None:
    """z ~ N(mean, exp(logvar)): its variance is that of the means plus the mean of the variances."""
    images = ImageShards.open_parts(PARTS, "train", root)
    values = {name: v.astype(np.float64) for name, v in stored(images.__getitems__(range(len(images))), dtype).items()}
    mean = values["mean"].mean(axis=(0, 2, 3))
    variance = values["mean"].var(axis=(0, 2, 3)) + np.exp(values["logvar"]).mean(axis=(0, 2, 3))
    for split in ("train", "val"):  # always the train split's
        found = LatentShards.open_parts(PARTS, split, latents).statistics
        np.testing.assert_allclose(found.mean, mean, rtol=1e-12)
        np.testing.assert_allclose(found.std, np.sqrt(variance), rtol=1e-12)


@in_float32
def test_the_widest_direction_is_that_of_the_latents_as_they_are_drawn(root: Path, latents: Path, dtype: str) -> None:
    """Against numpy's covariance of z = mean + exp(logvar / 2) noise, drawn often."""
    images = ImageShards.open_parts(PARTS, "train", root)
    values = {name: v.astype(np.float64) for name, v in stored(images.__getitems__(range(len(images))), dtype).items()}
    noise = np.random.default_rng(0).standard_normal((400, *values["mean"].shape))
    drawn = np.moveaxis(values["mean"] + np.exp(values["logvar"] / 2) * noise, 2, 0).reshape(2, -1)
    expected = np.sqrt(np.linalg.eigvalsh(np.corrcoef(drawn))[-1])
    reader = LatentShards.open_parts(PARTS, "train", latents)
    assert reader.principal_deviation() == pytest.approx(expected, rel=1e-2)
    assert reader.principal_deviation(max_rows=2) != reader.principal_deviation()


@in_float32
def test_two_writes_give_the_same_bytes(root: Path, latents: Path, dtype: str) -> None:
    before = contents(latents)
    make_latents(root, latents, "first", dtype)  # replaces what is there
    make_latents(root, latents, "second", dtype)
    assert contents(latents) == before
    assert not list(latents.parent.rglob(".*"))


def test_safetensors_reads_the_files(root: Path, latents: Path, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file

    tensors = load_file(latents / "first" / "train" / "00000.safetensors")
    expected = stored(ImageShards.open_parts(["first"], "train", root).__getitems__(range(7)), dtype)
    for name in ("mean", "logvar"):
        assert tensors[name].dtype == getattr(torch, dtype)
        assert (tensors[name].float().numpy() == expected[name]).all()


def test_the_librarys_own_files_are_read(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    values = np.random.default_rng(0).standard_normal((3, 2, 4, 4)).astype(np.float32)
    save_file({"mean": values, "logvar": -values}, tmp_path / "a.safetensors", metadata={"format": "np"})
    found = map_latent_shard(tmp_path / "a.safetensors")
    assert (found.tensor("mean") == values).all()
    assert (found.tensor("logvar") == -values).all()


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_bfloat16_rounds_as_torch_does(values: list[float]) -> None:
    torch = pytest.importorskip("torch")
    array = np.array(values, dtype=np.float32)
    assert (to_float32(to_bfloat16(array)) == torch.from_numpy(array).bfloat16().float().numpy()).all()


def test_bfloat16_rounds_ties_to_even() -> None:
    torch = pytest.importorskip("torch")
    upper = np.arange(0x3F00, 0x4100, dtype=np.uint32)[:, None] << 16
    array = (upper + np.array([0x7FFF, 0x8000, 0x8001], dtype=np.uint32)).view(np.float32)
    assert (to_float32(to_bfloat16(array)) == torch.from_numpy(array).bfloat16().float().numpy()).all()


def test_large_shards_are_encoded_piece_by_piece(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = make_latents(root, root.parent / "whole", "first")
    seen = []
    monkeypatch.setattr(latent_writer, "_GROUP", 3)
    pieces = make_latents(
        root, root.parent / "pieces", "first", encode=lambda x: seen.append(len(x)) or linear_encode(x)
    )
    assert max(seen) == 3
    assert pieces == whole


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes_read_too(root: Path, method: str) -> None:
    make_latents(root, root.parent / "latents", "first")
    reader = LatentShards.open_parts(["first"], "train", root.parent / "latents")
    rows = [len(reader) - 1, 0, 3]
    expected = reader.__getitems__(rows)["mean"]
    with multiprocessing.get_context(method).Pool(1) as pool:
        found = pool.apply_async(reader.__getitems__, (rows,)).get(timeout=60)
    assert (found["mean"] == expected).all()
    # The maps are not copied into the pickle: it stays small whatever the size of the data.
    assert len(pickle.dumps(reader)) < 5000


@pytest.mark.parametrize("rows", [[-1], [0, 10_000]])
def test_rows_outside_are_index_errors(root: Path, rows: list[int]) -> None:
    make_latents(root, root.parent / "latents", "first")
    with pytest.raises(IndexError):
        LatentShards.open_parts(["first"], "train", root.parent / "latents").__getitems__(rows)


# --- mirror images ---


@pytest.fixture(scope="module")
def mixed_template(dtype: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixed")
    make_part(folder / "shards", "true", 0, 40, mirror=True)
    make_part(folder / "shards", "false", 40, 60)
    for part in ("true", "false"):
        make_latents(folder / "shards", folder / "latents", part, dtype)
    return folder


@pytest.fixture
def mixed(mixed_template: Path, tmp_path: Path) -> Path:
    """Two parts, of which only `true` has mirror images; shards and latents."""
    return shutil.copytree(mixed_template, tmp_path, dirs_exist_ok=True)


def test_latents_of_mirror_images_are_beside_those_of_the_images(mixed: Path, dtype: str) -> None:
    images = ImageShards.open_parts(["false", "true"], "train", mixed / "shards")
    reader = LatentShards.open_parts(["false", "true"], "train", mixed / "latents")
    assert (reader.mirrors == images.mirrors).all()
    assert reader.mirrors.any() and not reader.mirrors.all()
    rows = np.random.default_rng(0).permutation(len(images))
    mirrored = reader.mirrors[rows] & (rows % 2 == 0)
    pixels = images.__getitems__(rows)
    pixels[mirrored] = pixels[mirrored][..., ::-1]
    found = reader.__getitems__(rows, VIEWS.index("_mirror") * mirrored)
    for name, expected in stored(pixels, dtype).items():
        assert (to_float32(found[name]) == expected).all()


def test_statistics_are_those_of_what_training_sees(mixed: Path, dtype: str) -> None:
    """An image with a mirror image is seen as often as one without: half as itself, half as its mirror image."""
    images = ImageShards.open_parts(["true", "false"], "train", mixed / "shards")
    pixels = images.__getitems__(range(len(images)))
    other = np.where(images.mirrors[:, None, None, None], pixels[..., ::-1], pixels)
    values = stored(np.concatenate([pixels, other]), dtype)
    mean, logvar = (values[name].astype(np.float64) for name in ("mean", "logvar"))
    variance = mean.var(axis=(0, 2, 3)) + np.exp(logvar).mean(axis=(0, 2, 3))
    found = LatentShards.open_parts(["true", "false"], "train", mixed / "latents").statistics
    np.testing.assert_allclose(found.mean, mean.mean(axis=(0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(found.std, np.sqrt(variance), rtol=1e-12)


@in_float32
def test_mirror_images_are_checked_too_and_only_where_there_are_any(mixed: Path) -> None:
    path = mixed / "latents" / "true" / "train" / "00000.safetensors"
    flip(path, path.stat().st_size - 1)  # logvar_mirror of the last row
    reader = LatentShards.open_parts(["true", "false"], "train", mixed / "latents")
    reader.__getitems__(range(len(reader)))
    with pytest.raises(ArtifactError, match=f"{path}: the latent of the image {reader.keys[6]}"):
        reader.__getitems__([6], np.array([VIEWS.index("_mirror")]))
    for view in ("_mirror", "_left"):
        with pytest.raises(IndexError, match="mirror or moved image"):
            reader.__getitems__([0, len(reader) - 1], np.full(2, VIEWS.index(view)))


# --- refusals ---


@pytest.mark.parametrize(("dtype", "shape"), [("bfloat16", (7, *LATENT)), ("float32", (7, 3, 3, 2))])
def test_another_header_than_the_manifest_says_is_refused(root: Path, dtype: str, shape: tuple[int, ...]) -> None:
    make_latents(root, root.parent / "latents", "first")
    path = root.parent / "latents" / "first" / "train" / "00000.safetensors"
    write_latent_shard(path, dict.fromkeys(("mean", "logvar"), np.zeros(shape, np.float32)), dtype)
    with pytest.raises(ArtifactError, match=rf"{path} has latents of .* but the manifest says \('.*', \(7, 2"):
        LatentShards.open_parts(["first"], "train", root.parent / "latents")


def test_a_flipped_bit_of_the_index_is_found_on_opening(root: Path) -> None:
    make_latents(root, root.parent / "latents", "first")
    path = root.parent / "latents" / "first" / "train" / "index.parquet"
    flip(path, path.stat().st_size - 20)
    with pytest.raises(ArtifactError, match=rf"{path} is corrupted.*dvc checkout"):
        LatentShards.open_parts(["first"], "train", root.parent / "latents")


@pytest.mark.parametrize("tensor", ["mean", "logvar"])
def test_a_flipped_bit_of_a_latent_is_found_when_it_is_read(root: Path, tensor: str) -> None:
    """The other rows can be read."""
    make_latents(root, root.parent / "latents", "first")
    path = root.parent / "latents" / "first" / "train" / "00001.safetensors"
    file = map_latent_shard(path)
    flip(path, file.starts[tensor] + file.tensor(tensor)[:4].nbytes - 1)  # the last byte of the fourth row
    reader = LatentShards.open_parts(["first"], "train", root.parent / "latents")
    assert [row for row in range(len(reader)) if not readable(reader, row)] == [7 + 3]
    with pytest.raises(ArtifactError, match=rf"{path}: the latent of the image {reader.keys[10]} is corrupted"):
        reader.__getitems__(range(len(reader)))
    with pytest.raises(ArtifactError, match="is corrupted"):  # a copy in another process checks anew
        pickle.loads(pickle.dumps(reader)).__getitems__([10])


def readable(reader: LatentShards, row: int) -> bool:
    try:
        reader.__getitems__([row])
    except ArtifactError:
        return False
    return True


def test_a_latent_is_hashed_once_a_process(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_latents(root, root.parent / "latents", "first")
    reader = LatentShards.open_parts(["first"], "train", root.parent / "latents")
    hashed = []
    real = hashlib.sha256
    monkeypatch.setattr(hashlib, "sha256", lambda data: hashed.append(data) or real(data))
    reader.__getitems__([3, 5])
    reader.__getitems__([5, 3, 4])
    assert len(hashed) == 3


def test_a_truncated_file_is_no_shard(tmp_path: Path) -> None:
    values = np.zeros((4, 2, 3, 3), dtype=np.float32)
    path = tmp_path / "00000.safetensors"
    write_latent_shard(path, {"mean": values, "logvar": values}, "float32")
    for size in (path.stat().st_size - 8, 40, 4, 0):
        path.write_bytes(path.read_bytes()[:size])
        with pytest.raises(ArtifactError, match=str(path)):
            map_latent_shard(path)


def test_latents_of_two_tokenizers_are_refused(root: Path) -> None:
    make_latents(root, root.parent / "latents", "first", tokenizer="a" * 64)
    make_latents(root, root.parent / "latents", "second", tokenizer="b" * 64)
    with pytest.raises(ArtifactError, match="`second` and `first` have different tokenizers"):
        LatentShards.open_parts(PARTS, "train", root.parent / "latents")
    assert LatentShards.open_parts(["first"], "train", root.parent / "latents").tokenizer == "a" * 64


def test_latents_of_two_shapes_are_refused(root: Path) -> None:
    make_latents(root, root.parent / "latents", "first")

    def smaller(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, logvar = linear_encode(images)
        return mean[:, :1], logvar[:, :1]

    make_latents(root, root.parent / "latents", "second", encode=smaller, shape=(1, 3, 3))
    with pytest.raises(ArtifactError, match="different shapes"):
        LatentShards.open_parts(PARTS, "train", root.parent / "latents")


@pytest.mark.parametrize(("name", "value"), [("mean", np.nan), ("logvar", 100.0)])
def test_a_diverged_tokenizer_is_named_by_shard_and_key(root: Path, name: str, value: float) -> None:
    key = ImageShards.open_parts(["first"], "train", root).keys[9]

    def diverged(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, logvar = linear_encode(images)
        bad = (images == ImageShards.open_parts(["first"], "train", root)[9]).all(axis=(1, 2, 3))
        (mean if name == "mean" else logvar)[bad, 1, 2, 0] = value
        return mean, logvar

    with pytest.raises(DarkroomError, match=rf"00001\.tar: the latent of the image {key} is not finite"):
        make_latents(root, root.parent / "latents", "first", encode=diverged)
    assert not (root.parent / "latents" / "first").exists()


def test_another_shape_than_the_tokenizers_is_refused(root: Path) -> None:
    with pytest.raises(DarkroomError, match=r"latents of shape \(7, 2, 3, 3\).*not \(7, 4, 3, 3\)"):
        make_latents(root, root.parent / "latents", "first", shape=(4, 3, 3))


def test_no_train_image_no_statistics(tmp_path: Path) -> None:
    make_part(tmp_path / "shards", "p", 0, 3, fractions={"train": 0.0, "val": 0.0, "test": 1.0})
    make_latents(tmp_path / "shards", tmp_path / "latents", "p")
    reader = LatentShards.open_parts(["p"], "test", tmp_path / "latents")
    assert len(reader) == 3
    with pytest.raises(ArtifactError, match="train split"):
        _ = reader.statistics
