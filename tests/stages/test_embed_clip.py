"""The stage `embed_clip`: embeddings are those of CLIP called directly, or those that others have made of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from darkroom.artifacts.manifest import read_manifest
from darkroom.data.embeddings import EmbeddingShards, require_same_images
from darkroom.data.reader import ImageShards
from darkroom.data.splits import SPLITS
from darkroom.errors import DarkroomError
from darkroom.models.clip.embedding import Embedder
from darkroom.models.clip.network import Clip
from darkroom.models.clip.settings import EmbedParams
from darkroom.stages import embed_clip
from data.making import contents, make_part
from helpers import run
from models.clip.clip_made import make_clip

SECTION = {
    "threads": 1,
    "batch": 4,
    "normalise": False,
    "encodings": True,
    "store": ["train", "val", "test"],
    "imported": {
        "images": "img_emb",
        "texts": "text_emb",
        "encodings": None,
        "index_width": 4,
        "missing": "stop",
    },
}


@pytest.fixture
def clip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clip:
    """A part of forty images, of which a fifth has no caption, and a CLIP."""
    monkeypatch.chdir(tmp_path)
    make_part(Path("data/shards"), "first", 0, 40)
    return make_clip(Path("models/clip"), long_captions="truncate")


def embed(part: str = "first", folder: str = "data/none", imported: dict | None = None, **changes: Any) -> dict:
    """Run the stage and return the manifest."""
    section = {**SECTION, **changes, "imported": {**SECTION["imported"], **(imported or {})}}  # type: ignore[dict-item]
    values = {"run": run(), "parts": {part: {"embeddings": folder}}, "embed_clip": section}
    embed_clip.run(EmbedParams.model_validate(values), part)
    return read_manifest(Path("data/embeddings") / part, "embeddings")


def images_of(split: str = "train") -> ImageShards:
    return ImageShards.open_parts(["first"], split)


@pytest.mark.parametrize("normalise", [False, True])
def test_embeddings_are_those_of_clip_called_directly(clip: Clip, normalise: bool) -> None:
    """To the rounding to float16, 2^-11 of a number, and of other batches, 1e-6."""
    manifest = embed(normalise=normalise)
    assert (manifest["clip"], manifest["normalised"], manifest["names"]) == (
        *(clip.fingerprint, normalise),
        ["image", "text", "encoding"],
    )
    for split in SPLITS:
        images = images_of(split)
        reader = EmbeddingShards.open_parts(["first"], split)
        require_same_images(reader, images)
        found = reader.__getitems__(range(len(images)), reader.names)
        image = clip.images(torch.from_numpy(images.__getitems__(range(len(images)))))
        text, encoding = clip.texts([caption or "" for caption in images.captions])
        if normalise:
            image, text = (each / each.norm(dim=1, keepdim=True) for each in (image, text))
        captioned = torch.tensor([caption is not None for caption in images.captions])
        text[~captioned], encoding[~captioned] = 0, 0
        for name, expected in {"image": image, "text": text, "encoding": encoding}.items():
            np.testing.assert_allclose(found[name], expected.numpy(), rtol=6e-4, atol=2e-6, err_msg=name)
    assert not captioned.all() and captioned.any()


def test_the_same_batch_gives_the_same_bits_and_a_second_run_the_same_bytes(clip: Clip) -> None:
    """Row 0 to 3 of a shard are the first batch."""
    embed()
    images = torch.from_numpy(images_of().__getitems__(range(4)))
    found = EmbeddingShards.open_parts(["first"], "train").__getitems__(range(4))["image"]
    assert (found == clip.images(images).numpy().astype(np.float16)).all()
    before = contents(Path("data/embeddings"))
    embed()
    assert contents(Path("data/embeddings")) == before


def test_a_caption_that_is_too_long_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_part(Path("data/shards"), "first", 0, 40)
    make_clip(Path("models/clip"), long_captions="stop").to(torch.device("cpu"))
    monkeypatch.setattr(Clip, "context_length", property(lambda _: 4, lambda *_: None), raising=False)
    with pytest.raises(
        DarkroomError, match=r"of the image noise-\d{4} of data/shards/first/train/00000\.tar is longer"
    ):
        embed()


def test_a_split_that_is_not_stored_is_not_computed(clip: Clip, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, whole = [], Embedder.shard

    def counted(self: Embedder, reader: Any, shard: Any, names: Any) -> Any:
        seen.append(shard.tar)
        return whole(self, reader, shard, names)

    monkeypatch.setattr(Embedder, "shard", counted)
    manifest = embed(store=["test"], encodings=False)
    assert seen and all("/test/" in tar for tar in seen)
    assert {split: manifest["splits"][split]["stored"] for split in SPLITS} == {
        "train": False,
        "val": False,
        "test": True,
    }
    assert manifest["names"] == ["image", "text"] and manifest["encoding_shape"] is None


def test_images_without_any_caption_have_no_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from data.making import Noise

    class Silent(Noise):
        def read(self, entry: Any) -> Any:
            return replace(super().read(entry), caption=None)

    monkeypatch.chdir(tmp_path)
    make_part(Path("data/shards"), "first", 0, 20, source=Silent())
    make_clip(Path("models/clip"))
    assert embed()["names"] == ["image"]


# --- embeddings by others ---


def close(normalise: bool = True) -> None:
    """Check the imported embeddings against computed ones."""
    found = {split: EmbeddingShards.open_parts(["first"], split) for split in SPLITS}
    found = {split: reader.__getitems__(range(len(reader)), reader.names) for split, reader in found.items()}
    embed(normalise=normalise)
    for split in SPLITS:
        reader = EmbeddingShards.open_parts(["first"], split)
        for name, values in reader.__getitems__(range(len(reader)), reader.names).items():
            np.testing.assert_allclose(found[split][name], values, rtol=2e-3, atol=2e-4, err_msg=name)


@pytest.fixture
def numbered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Clip, dict[str, tuple[np.ndarray, str | None]]]:
    """A part whose keys are 000010007, and its images and captions by key."""
    from darkroom.data.sample import Entry
    from data.making import Noise

    class Tars(Noise):
        def entries(self, start: int, stop: int | None) -> Any:
            for number in range(start, stop or 0):
                yield Entry(f"{number // 10 + 3:05d}{number % 10 * 2:04d}", f"noise {number}", number)

    monkeypatch.chdir(tmp_path)
    make_part(Path("data/shards"), "first", 0, 40, source=Tars())
    clip = make_clip(Path("models/clip"), long_captions="truncate")
    known = {}
    for split in SPLITS:
        images = images_of(split)
        known |= {key: (images[row], images.captions[row]) for row, key in enumerate(images.keys)}
    return clip, known


def dalle2(clip: Clip, known: dict, folder: Path, normalise: bool = False) -> None:
    """Write a file a tar, whose row is the end of the key and which is zero elsewhere; encodings as its texts."""
    for name in ("images", "texts"):
        (folder / name).mkdir(parents=True)
    for tar in {key[:5] for key in known}:
        image, text = np.zeros((20, 8), np.float32), np.zeros((20, 8, 64), np.float32)
        for key in (key for key in known if key.startswith(tar)):
            image[int(key[5:])] = clip.images(torch.from_numpy(known[key][0])[None])[0]
            if known[key][1] is not None:
                text[int(key[5:])] = clip.texts([known[key][1]])[1][0]
        if normalise:
            image /= np.linalg.norm(image, axis=1, keepdims=True).clip(1e-6)
        np.save(folder / f"images/img_emb_{int(tar):04d}.npy", image)
        np.save(folder / f"texts/text_emb_{int(tar):04d}.npy", text)


LAYOUT = {"images": "images", "texts": None, "encodings": "texts"}


def test_dalle2s_files_are_joined_by_tar_and_row(numbered: Any, tmp_path: Path) -> None:
    dalle2(*numbered, tmp_path / "theirs")
    embed(folder=str(tmp_path / "theirs"), imported=LAYOUT)
    close(normalise=False)


def test_dalle2s_zero_row_is_missing(numbered: Any, tmp_path: Path) -> None:
    dalle2(*numbered, tmp_path / "theirs")
    key = images_of().keys[4]
    path = tmp_path / f"theirs/images/img_emb_{int(key[:5]):04d}.npy"
    rows = np.load(path)
    rows[int(key[5:])] = 0
    np.save(path, rows)
    with pytest.raises(DarkroomError, match=rf"train/00000\.tar: 1 of 7 images .*, the first is {key}: .* to compute"):
        embed(folder=str(tmp_path / "theirs"), imported=LAYOUT)
    embed(folder=str(tmp_path / "theirs"), imported={**LAYOUT, "missing": "compute"})
    close(normalise=False)


def test_rows_that_were_not_normalised_are(numbered: Any, tmp_path: Path) -> None:
    dalle2(*numbered, tmp_path / "theirs")
    assert embed(folder=str(tmp_path / "theirs"), imported=LAYOUT, normalise=True)["source"] == {"layout": "dalle2"}
    close()


def test_lengths_that_are_lost_are_told(numbered: Any, tmp_path: Path) -> None:
    dalle2(*numbered, tmp_path / "theirs", normalise=True)
    with pytest.raises(DarkroomError, match=r"are normalised, but `embed_clip\.normalise` is false"):
        embed(folder=str(tmp_path / "theirs"), imported=LAYOUT)


def test_another_clips_embeddings_are_refused(numbered: Any, tmp_path: Path) -> None:
    dalle2(make_clip(tmp_path / "other", seed=5, long_captions="truncate"), numbered[1], tmp_path / "theirs")
    with pytest.raises(DarkroomError, match=r"00000\.tar: .* from \d+ on come from another CLIP than models/clip"):
        embed(folder=str(tmp_path / "theirs"), imported=LAYOUT, normalise=True)


def test_a_missing_row_is_named_or_computed(numbered: Any, tmp_path: Path) -> None:
    """Where the file of a tar is not there."""
    dalle2(*numbered, tmp_path / "theirs")
    (tmp_path / f"theirs/images/img_emb_{int(images_of().keys[4][:5]):04d}.npy").unlink()
    with pytest.raises(
        DarkroomError, match=r"data/shards/first/\w+/\d+\.tar: \d of \d images have no imported image embedding"
    ):
        embed(folder=str(tmp_path / "theirs"), imported=LAYOUT)
    embed(folder=str(tmp_path / "theirs"), imported={**LAYOUT, "missing": "compute"})
    close(normalise=False)


@pytest.mark.parametrize(
    ("break_", "told"),
    [
        (lambda f: np.save(f / "img_emb_3.npy", np.zeros((20, 8))), "have the same number"),
        (lambda f: [path.unlink() for path in f.iterdir()], "images has no embeddings"),
        (
            lambda f: [np.save(path, np.ones((20, 6))) for path in f.iterdir()],
            r"have shape \(6,\), but those of the CLIP in models/clip have \(8,\)",
        ),
    ],
)
def test_files_that_do_not_fit_are_told(numbered: Any, tmp_path: Path, break_: Any, told: str) -> None:
    dalle2(*numbered, tmp_path / "theirs")
    break_(tmp_path / "theirs/images")
    with pytest.raises(DarkroomError, match=told):
        embed(folder=str(tmp_path / "theirs"), imported=LAYOUT)


def test_a_key_without_digits_is_told(clip: Clip, tmp_path: Path) -> None:
    folder = tmp_path / "theirs" / "images"
    folder.mkdir(parents=True)
    np.save(folder / "img_emb_0000.npy", np.ones((50, 8)))
    imported = {"images": "images", "texts": None, "index_width": 6}
    with pytest.raises(DarkroomError, match=r"the key noise-\d+ has no tar and row number: keys must end in 6 digits"):
        embed(folder=str(tmp_path / "theirs"), imported=imported)


def test_the_original_tars_number_counts_where_images_are_read_in_place() -> None:
    from types import SimpleNamespace

    from darkroom.data.embedding_imports import Dalle2

    made = object.__new__(Dalle2)
    made._width = 4
    shard = SimpleNamespace(tar="https://a.b/part_00012.tar?sig=9", preparation=object())
    assert made._number(shard, "x0003") == 12
    assert made._number(SimpleNamespace(tar="data/shards/p/train/00000.tar", preparation=None), "000420003") == 42
