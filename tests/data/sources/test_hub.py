"""The source `hub`: folders in the Hub's layout, and a Hub on this machine that the real client streams from."""

import io
import json
import os
import re
import subprocess
import sys
import textwrap
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from darkroom.check.check import read_params
from darkroom.data.damage import Reason
from darkroom.data.reader import ImageShards
from darkroom.data.sample import Raw
from darkroom.data.sources.hub import Hub
from darkroom.errors import DarkroomError
from darkroom.params.ingest import Params
from darkroom.params.parts import Hub as Settings
from darkroom.stages import ingest
from data.sources.outcomes import outcomes
from helpers import DIGITS

datasets = pytest.importorskip("datasets", reason="the extra `hub` is not installed")
ROOT = Path(__file__).parents[3]
VALUES = read_params(DIGITS)


def settings(**changes: Any) -> Settings:
    return Settings.model_validate({**VALUES["hub"], **changes})


def picture(number: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (9, 8), (number, 0, 7)).save(buffer, "PNG")
    return buffer.getvalue()


def parquet(folder: Path, images: list[dict[str, Any] | None], labels: list[int | None], split: str = "train") -> Path:
    """Write a split as `Dataset.push_to_hub` does; captions are lists of texts."""
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=["cat", "dog"]),
            "caption": datasets.List(datasets.Value("string")),
            "score": datasets.Value("float32"),
        }
    )
    count = len(images)
    captions = [[f"the first of {row}", "another"] if row % 2 == 0 else [] for row in range(count)]
    columns = {"image": images, "label": [0] * count, "caption": captions, "score": [0.5] * count}
    path = folder / f"data/{split}-00000-of-00001.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict(columns, features=features).to_parquet(path)
    # The labels as they are asked for: the package itself would write no number that is not a class.
    table = pq.read_table(path)
    place = table.schema.get_field_index("label")
    pq.write_table(table.set_column(place, table.schema.field(place), pa.array(labels, pa.int64())), path)
    return folder


@pytest.mark.parametrize("columns", [False, True])
def test_captions_of_the_hub_may_be_conversations_and_lose_their_nuls(tmp_path: Path, columns: bool) -> None:
    turn = {"from": datasets.Value("string"), "value": datasets.Value("string")}
    turns = {name: datasets.List(kind) for name, kind in turn.items()} if columns else datasets.List(turn)
    texts = ["<image>\nwhat?", "a c\0at"]
    told = [{"from": who, "value": text} for who, text in zip(["human", "gpt"], texts, strict=True)]
    row = {"from": ["human", "gpt"], "value": texts} if columns else told
    made = datasets.Dataset.from_dict(
        {"image": [{"bytes": picture(0), "path": None}], "talk": [row]},
        features=datasets.Features({"image": datasets.Image(), "talk": turns}),
    )
    made.to_parquet(tmp_path / "train.parquet")
    ((_, _, raw),) = outcomes(Hub(settings(label=None, caption="talk"), tmp_path))
    assert isinstance(raw, Raw) and raw.caption == "a cat"
    assert [finding.reason for finding in raw.findings] == [Reason.CAPTION_NOT_UTF8]


def six(folder: Path) -> Path:
    images: list[dict[str, Any] | None] = [{"bytes": picture(row), "path": f"{row}.png"} for row in range(6)]
    images[3] = None
    return parquet(folder, images, [0, 1, 7, 0, -1, None])


def test_rows_of_parquet_come_in_their_order_or_are_listed(tmp_path: Path) -> None:
    source = Hub(settings(caption="caption"), six(tmp_path))
    found = outcomes(source)
    assert [(key, where) for key, where, _ in found] == [
        (f"hub-0000000{row}", f"row {row}: {row}.png" if row != 3 else "row 3") for row in range(6)
    ]
    assert found[3][2] == Reason.MISSING
    raws = {row: what for row, (_, _, what) in enumerate(found) if isinstance(what, Raw)}
    assert {row: raw.image for row, raw in raws.items()} == {row: picture(row) for row in (0, 1, 2, 4, 5)}
    assert [raw.label for raw in raws.values()] == ["cat", "dog", "7", None, None]
    assert raws[0].caption == "the first of 0"
    missing, outside, no_caption = Reason.LABEL_MISSING, Reason.LABEL_OUT_OF_RANGE, Reason.CAPTION_MISSING
    reasons = [[finding.reason for finding in raw.findings] for raw in raws.values()]
    assert reasons == [[], [no_caption], [outside], [missing], [missing, no_caption]]
    assert source.metadata() == {"configuration": None, "split": "train"}


def test_a_slice_has_the_keys_of_its_rows(tmp_path: Path) -> None:
    source = Hub(settings(), six(tmp_path))
    assert [key for key, _, _ in outcomes(source, 2, 5)] == [f"hub-0000000{row}" for row in (2, 3, 4)]
    with pytest.raises(DarkroomError, match=r"`train` of .* has 6 rows, but the part requests rows 4 to 9"):
        outcomes(source, 4, 9)
    with pytest.raises(DarkroomError, match=r"has at most 9 rows, but the part requests rows 9 to the end"):
        outcomes(source, 9, None)


def test_ingest_stores_the_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    six(Path("my set"))
    part = {"source": "hub", "path": "my set", "settings": {"caption": "caption"}}
    cut = {
        **VALUES["ingest"],
        "image_size": 8,
        "rules": {**VALUES["ingest"]["rules"], "label_missing": "keep"},
        "splits": {"train": 1.0, "val": 0.0, "test": 0.0},
    }
    values = {"run": VALUES["run"], "hub": VALUES["hub"], "ingest": cut, "parts": {"pets": part}}
    ingest.run(Params.model_validate(values), "pets")
    images = ImageShards.open_parts(["pets"], "train")
    assert list(images.keys) == [f"hub-0000000{row}" for row in (0, 1, 4, 5)]
    assert list(images.labels) == ["cat", "dog", None, None]
    assert images.captions[0] == "the first of 0"
    listed = pq.read_table("data/shards/pets/quarantine.parquet").to_pylist()
    left_out = [(row["key"], row["reason"]) for row in listed if row["action"] == "quarantine"]
    assert left_out == [("hub-00000002", "label_out_of_range"), ("hub-00000003", "missing")]
    assert str(tmp_path) not in Path("data/shards/pets/manifest.json").read_text() + str(listed)


def test_an_image_folder_is_read_by_its_files(tmp_path: Path) -> None:
    for row, name in enumerate(["train/cat/a.png", "train/cat/b.png", "train/dog/a.png", "test/dog/c.png"]):
        path = tmp_path / "pets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(row))
    found = outcomes(Hub(settings(), tmp_path / "pets"))
    assert [where for _, where, _ in found] == [
        f"row {n}: train/{x}.png" for n, x in enumerate(["cat/a", "cat/b", "dog/a"])
    ]
    assert [(what.image, what.label) for _, _, what in found if isinstance(what, Raw)] == [
        (picture(row), label) for row, label in enumerate(["cat", "cat", "dog"])
    ]


def test_images_in_an_archive_are_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "train.zip", "w") as archive:
        archive.writestr("a.png", picture(1))
    ((_, where, what),) = outcomes(Hub(settings(label=None), tmp_path))
    assert where == "row 0: train.zip: a.png"
    assert isinstance(what, Raw) and what.image == picture(1)


@pytest.mark.parametrize(
    "name", ["{}/secret.png", "file://{}/secret.png", "zip://a.png::{}/a.zip", "{}/set/../secret.png"]
)
def test_a_row_cannot_name_files_outside_of_the_data_set(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret.png").write_bytes(picture(1))
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.png", picture(1))
    image: dict[str, Any] = {"bytes": None, "path": name.format(tmp_path)}
    parquet(tmp_path / "set", [image], [0])
    ((_, where, what),) = outcomes(Hub(settings(), tmp_path / "set"))
    assert what == Reason.UNREADABLE
    assert str(tmp_path) not in where


def test_a_file_that_is_gone_is_listed(tmp_path: Path) -> None:
    (tmp_path / "gone.png").write_bytes(picture(1))
    parquet(tmp_path, [{"bytes": None, "path": f"{tmp_path}/gone.png"}], [0])
    (tmp_path / "gone.png").unlink()
    ((_, where, what),) = outcomes(Hub(settings(), tmp_path))
    assert (where, what) == ("row 0: gone.png", Reason.MISSING)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"split": "val"}, "has no split `val`, only `train`"),
        ({"configuration": "large"}, "`hub.configuration` large, cannot be read as a data set: .*default"),
        ({"image": "img"}, "no column `img`, set by `hub.image`, only `image`, `label`, `caption`, `score`"),
        ({"image": "score"}, "column `score`, set by `hub.image`, is .*float32.*, which holds no images"),
        ({"label": "caption"}, "column `caption`, set by `hub.label`, is .*, which holds no labels"),
        ({"caption": "score"}, "column `score`, set by `hub.caption`, is .*, which holds no captions"),
    ],
)
def test_what_the_data_set_lacks_is_named_beside_what_it_has(tmp_path: Path, changes: dict, message: str) -> None:
    with pytest.raises(DarkroomError, match=message):
        Hub(settings(**changes), six(tmp_path))


def test_paths_that_are_no_data_set_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DarkroomError, match="gone: the path of a part with the source `hub` must be a folder"):
        Hub(settings(), Path("gone"))
    Path("empty").mkdir()
    with pytest.raises(DarkroomError, match=r"empty, .* cannot be read as a data set"):
        Hub(settings(), Path("empty"))
    # The package would read this folder where the Hub's data set is meant.
    six(Path("me/pets"))
    with pytest.raises(DarkroomError, match="me/pets, which is also a folder here"):
        Hub(settings(dataset="me/pets"))


def test_a_damaged_file_stops_the_stage_and_names_the_row(tmp_path: Path) -> None:
    path = six(tmp_path) / "data/train-00000-of-00001.parquet"
    data = bytearray(path.read_bytes())
    data[4:400] = bytes(396)
    path.write_bytes(data)
    with pytest.raises(DarkroomError, match=r"row 0 of the split `train` and those after it cannot be read"):
        outcomes(Hub(settings(), tmp_path))


def test_without_the_package_the_way_to_get_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DarkroomError, match=r"pip install -e '\.\[hub\]'"):
        Hub(settings(), tmp_path)


def test_a_hub_that_cannot_be_reached_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    monkeypatch.chdir(tmp_path)
    asked: list[str] = []

    class Api(huggingface_hub.HfApi):
        def __init__(self) -> None:
            super().__init__(endpoint="http://127.0.0.1:1")
            asked.append("once")

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    with pytest.raises(DarkroomError, match=r"ylecun/mnist cannot be read from the Hugging Face Hub: .*`path`"):
        Hub(settings())
    assert asked == ["once"]
    with pytest.raises(DarkroomError, match=r"Check `hub\.dataset`, OWNER/NAME"):
        Hub(settings(dataset="one/too/many"))


COMMIT = "5" * 40


class Server(BaseHTTPRequestHandler):
    """What the Hub's client asks for to stream the data sets me/pets, and me/gated, whose files it may not see."""

    protocol_version = "HTTP/1.1"
    files: dict[str, bytes]

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        known = re.fullmatch(r"/api/datasets/me/(pets|gated)(?:/revision/([^/]+))?", path)
        tree = re.fullmatch(r"/api/datasets/me/pets/tree/[^/]+(?:/(.*))?", path)
        file = re.fullmatch(r"/datasets/me/pets/resolve/[^/]+/(.*)", path)
        if known and known[2] in (None, "main", COMMIT):
            self._json(
                {"id": f"me/{known[1]}", "sha": COMMIT, "siblings": [{"rfilename": name} for name in self.files]}
            )
        elif known:
            self._send(404, error="RevisionNotFound")
        elif tree and (listed := [name for name in self.files if name.startswith((tree[1] or "data") + "/")]):
            metadata = [{"type": "file", "oid": "1" * 40, "size": len(self.files[n]), "path": n} for n in listed]
            self._json(metadata if tree[1] else [{"type": "directory", "oid": "2" * 40, "size": 0, "path": "data"}])
        elif file and file[1] in self.files:
            self._file(self.files[file[1]])
        elif tree or file:
            self._send(404, error="EntryNotFound")
        elif "/me/gated/" in path:
            self._send(403, error="GatedRepo")
        else:
            self._send(401, error="RepoNotFound")

    do_HEAD = do_GET  # noqa: N815

    def _json(self, value: Any) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _file(self, data: bytes) -> None:
        headers = {"ETag": '"x"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        if (asked := re.match(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))) is None:
            return self._send(200, data, headers)
        first, last = int(asked[1]), min(int(asked[2]), len(data) - 1)
        return self._send(
            206, data[first : last + 1], {**headers, "Content-Range": f"bytes {first}-{last}/{len(data)}"}
        )

    def _send(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None, error: str = "") -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), **({"X-Error-Code": error} if error else {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    root = six(tmp_path / "hub")
    Server.files = {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*.parquet")}
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_data_set_is_streamed_from_the_hub_at_its_commit(tmp_path: Path, endpoint: str) -> None:
    code = """
        import json
        from test_hub import *
        source = Hub(settings(dataset="me/pets"))
        found = outcomes(source, 1, 5)
        told = [(key, what.label if isinstance(what, Raw) else what) for key, _, what in found]
        for changes in ({"dataset": "me/none"}, {"dataset": "me/gated"}, {"dataset": "me/pets", "revision": "v2"}):
            try:
                Hub(settings(**changes))
            except DarkroomError as error:
                told.append(str(error))
        import huggingface_hub.constants
        huggingface_hub.constants.HF_HUB_OFFLINE = True
        try:
            Hub(settings(dataset="me/pets"))
        except DarkroomError as error:
            told.append(str(error))
        print(json.dumps([source.metadata(), *told]))
    """
    environment = {
        **os.environ,
        "HF_ENDPOINT": endpoint,
        "HF_HUB_ETAG_TIMEOUT": "60",  # seconds; 10 are too few on a busy machine
        "HF_HUB_DOWNLOAD_TIMEOUT": "60",
        "HF_HOME": str(tmp_path / "home"),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(ROOT / "tests"), str(ROOT / "src")]),
    }
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    metadata, *told = json.loads(done.stdout)
    assert metadata == {"dataset": "me/pets", "revision": COMMIT, "configuration": None, "split": "train"}
    assert told[:4] == [[f"hub-0000000{row}", what] for row, what in ((1, "dog"), (2, "7"), (3, "missing"), (4, None))]
    sentences = [
        "me/none cannot be read from the Hugging Face Hub: RepositoryNotFoundError",
        "me/gated .*gated, accept its terms.*HF_TOKEN",
        "me/pets cannot .*RevisionNotFoundError",
        "OfflineModeIsEnabled",
    ]
    assert [re.search(pattern, text) is not None for pattern, text in zip(sentences, told[4:], strict=True)] == [
        True
    ] * 4
