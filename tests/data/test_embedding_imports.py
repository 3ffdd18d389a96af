"""Rows of clip-retrieval and the images that they are of."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from darkroom.data.embedding_imports import ClipRetrieval
from darkroom.data.keys import key_of

FILES = ["cats/001.jpg", "dogs/001.jpg", "002.jpg", "dogs/old/a b.png"]


def written(folder: Path, paths: list[str]) -> ClipRetrieval:
    """Embeddings 1, 2, 3 and so on of the images of some paths."""
    for name in ("img_emb", "metadata"):
        (folder / name).mkdir(parents=True)
    np.save(folder / "img_emb/img_emb_0.npy", np.arange(1, len(paths) + 1, dtype=np.float16)[:, None])
    pq.write_table(pa.table({"image_path": paths}), folder / "metadata/metadata_0.parquet")
    return ClipRetrieval(folder, {"image": "img_emb"}, "metadata", "image_path")


@pytest.mark.parametrize("root", ["", "/data/photos/", "of someone/"])
@pytest.mark.parametrize("below", ["", "birds/"])
def test_the_files_of_a_folder_are_found_by_their_paths_below_it(tmp_path: Path, root: str, below: str) -> None:
    """Wherever the folder lay, and also where all that it holds lies in one folder."""
    files = [below + file for file in FILES]
    found = written(tmp_path, [root + file for file in files])
    keys = [key_of(file.rpartition(".")[0]) for file in reversed(files)] + ["another"]
    reader = SimpleNamespace(texts=lambda shard: [{"key": key} for key in keys])
    strangers = SimpleNamespace(texts=lambda shard: [{"key": "a stranger"}])
    assert not found.shard(strangers, None)["image"].present.any()  # type: ignore[arg-type]
    rows = found.shard(reader, None)["image"]  # type: ignore[arg-type]
    assert rows.values[:, 0].tolist() == [4, 3, 2, 1, 0] and rows.present.tolist() == [True] * 4 + [False]


def test_keys_that_are_names_alone_are_found_in_any_folders(tmp_path: Path) -> None:
    found = written(tmp_path, ["a/0001.jpg", "b/0002.jpg"])
    reader = SimpleNamespace(texts=lambda shard: [{"key": "0002"}, {"key": "0001"}])
    assert found.shard(reader, None)["image"].values[:, 0].tolist() == [2, 1]  # type: ignore[arg-type]
