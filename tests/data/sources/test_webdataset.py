import os
import pickle
import re
import shlex
import shutil
import subprocess
import tarfile
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from darkroom.data.damage import DamageError, Finding, Reason
from darkroom.data.sample import Entry, Raw
from darkroom.data.shards import KEY
from darkroom.data.sources.webdataset import Webdataset
from darkroom.errors import DarkroomError
from darkroom.params.parts import Webdataset as Settings
from darkroom.params.section import validate
from data.making_tars import img2dataset, picture, settings, tar

ROOT = Path(__file__).parents[3]
REAL = Path(os.environ.get("DARKROOM_IMG2DATASET", ROOT / ".venv.img2dataset/bin/img2dataset"))


@pytest.fixture(autouse=True)
def _cache_in_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "checkout"))


def opened(path: Path | None, **changes: Any) -> Webdataset:
    return Webdataset(settings(**changes), path)


def entries(source: Webdataset, start: int = 0, stop: int | None = None) -> list[Entry]:
    return list(source.entries(start, stop))


def outcome(source: Webdataset, entry: Entry) -> Raw | tuple[Reason, str]:
    try:
        return source.read(entry)
    except DamageError as error:
        return error.reason, error.detail


def one(path: Path, members: dict[str, bytes], **changes: Any) -> Raw:
    """Return what is read of a tar with one sample."""
    source = opened(tar(path / "one.tar", members), **changes)
    (raw,) = [raw for entry in entries(source) if isinstance(raw := outcome(source, entry), Raw)]
    return raw


def found(raw: Raw) -> list[Reason]:
    return [finding.reason for finding in raw.findings]


# --- img2dataset ---


def test_a_folder_of_img2dataset_comes_whole(tmp_path: Path) -> None:
    kept = img2dataset(tmp_path / "laion")
    source = opened(tmp_path / "laion")
    every = entries(source)
    assert len(every) == 16
    assert [entry.key for entry in every] == sorted(entry.key for entry in every)  # shards have ascending keys, too
    read = {entry.key: outcome(source, entry) for entry in every}
    images = {key: raw for key, raw in read.items() if isinstance(raw, Raw)}
    assert sorted(images) == kept
    for key, raw in images.items():
        shard, row = int(key[:5]), int(key[5:])
        assert raw.image == picture(100 * shard + row)
        assert (raw.label, raw.caption) == (str(row % 3), f"picture {row}, größer")
        assert (raw.identity, raw.findings) == (raw.image, ())
        assert raw.extent is not None
        assert raw.extent.tar == shard
        data = (tmp_path / "laion" / f"{shard:05d}.tar").read_bytes()
        assert data[raw.extent.offset :][: raw.extent.size] == raw.image
    assert {entry.where for entry in every[:2]} == {"00000.tar: 000000000", "00000.tar: 000000001"}
    assert source.metadata() == {"shards": 2}


def test_a_slice_is_one_of_shards(tmp_path: Path) -> None:
    img2dataset(tmp_path / "laion", shards=3)
    source = opened(tmp_path / "laion")
    assert {entry.key[:5] for entry in entries(source, 1, 2)} == {"00001"}
    assert entries(source, 0, 1) + entries(source, 1) == entries(source)
    for start, stop in ((0, 4), (3, None), (2, 2)):
        with pytest.raises(DarkroomError, match=f"shards {start} to .* of a source with 3"):
            entries(source, start, stop)


def test_shards_that_begin_at_the_same_key_are_told_apart_by_their_names(tmp_path: Path) -> None:
    for shard in ("cats", "dogs"):
        tar(tmp_path / f"{shard}.tar", {f"{number:06d}.jpg": picture(number) for number in range(3)})
    keys = [entry.key for entry in entries(opened(tmp_path, shard_in_key=True))]
    assert keys == [f"{shard}-{number:06d}" for shard in ("cats", "dogs") for number in range(3)]
    assert len({entry.key for entry in entries(opened(tmp_path))}) == 3


def test_webdataset_itself_reads_the_same_keys_and_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WDS_SECURE", "1")
    from webdataset import TarWriter
    from webdataset.tariterators import group_by_keys, tar_file_iterator

    path = tmp_path / "a.tar"
    with path.open("wb") as file, TarWriter(file) as writer:
        for number in range(4):
            writer.write({"__key__": f"{number:04d}", "left.JPG": picture(number), "txt": "a", "cls": number})
        writer.write({"__key__": "sub/0004", "png": picture(4, "PNG"), "json": {"a": 1}})
        writer.write({"__key__": "__meta__/0005", "png": b""})
    with path.open("rb") as file:
        members = [{**member, "__url__": "a.tar"} for member in tar_file_iterator(file)]
    theirs = {sample["__key__"]: sample for sample in group_by_keys(members)}
    source = opened(path, image=["left.jpg", "png"], label="cls")
    every = [entry for entry in entries(source) if entry.where != "a.tar: __meta__/0005.png"]  # which is listed
    ours = {entry.where.removeprefix("a.tar: "): source.read(entry) for entry in every}
    assert ours.keys() == theirs.keys()
    for key, raw in ours.items():
        assert raw.image == theirs[key].get("left.jpg", theirs[key].get("png"))
        assert raw.label == (theirs[key]["cls"].decode() if "cls" in theirs[key] else None)
        assert raw.caption == (theirs[key]["txt"].decode() if "txt" in theirs[key] else None)


class _Server(BaseHTTPRequestHandler):
    """Answers with pictures by number, 404 for others, and with the header that img2dataset respects for number 2."""

    def do_GET(self) -> None:
        name = self.path.strip("/")
        if not name.isdigit():
            self.send_error(404)
            return
        body = picture(int(name))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        if name == "2":
            self.send_header("X-Robots-Tag", "noai")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_file(), reason=f"{REAL} is not there: `make img2dataset` sets it up")
def test_what_the_real_img2dataset_writes_by_the_command_of_docs_data(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_port}/"
        columns = {
            "url": [base + name for name in ("0", "1", "2", "gone")],
            "caption": list("abcd"),
            "label": [3, 4, 5, 6],
        }
        pq.write_table(pa.table(columns), tmp_path / "table.parquet")
        (command,) = re.findall(
            r"^\S*img2dataset (--url_list.*?)```", (ROOT / "docs/how-to/choose-data.md").read_text(), re.M | re.S
        )
        words = shlex.split(command.replace("\\\n", "").replace("table.parquet", str(tmp_path / "table.parquet")))
        words[words.index("data/downloaded")] = str(tmp_path / "downloaded")
        subprocess.run([REAL, *words, "--disallowed_header_directives", '["noai"]'], check=True, timeout=300)
        server.shutdown()
    source = opened(tmp_path / "downloaded", label="json:label")
    read = [source.read(entry) for entry in entries(source)]
    images = [(raw.image, raw.label, raw.caption) for raw in read]
    assert images == [(picture(0), "3", "a"), (picture(1), "4", "b")]


# --- samples and keys ---


def test_names_of_all_kinds_give_keys_that_are_allowed_and_differ(tmp_path: Path) -> None:
    latin = b"caf\xe9".decode("utf-8", "surrogateescape")
    names = ["a/000", "a-000", "b/000", "./c", "ü", "x" * 90, "with blank", latin]
    source = opened(tar(tmp_path / "a.tar", {f"{name}.jpg": picture(n) for n, name in enumerate(names)}))
    every = entries(source)
    assert len({entry.key for entry in every}) == len(names)
    assert all(KEY.fullmatch(entry.key) for entry in every)
    assert {"a-000", "c"} <= {entry.key for entry in every}
    for entry in every:
        entry.where.encode()  # can stand in a file
        source.read(entry)
    assert r"a.tar: caf\xe9" in [entry.where for entry in every]


def test_members_in_any_order_make_a_sample_and_a_second_one_is_another(tmp_path: Path) -> None:
    members = [("b.jpg", picture(1)), ("a.txt", b"A"), ("b.txt", b"B"), ("a.jpg", picture(0))]
    again = [("a.jpg", picture(2)), ("a.txt", b"again")]
    source = opened(tar(tmp_path / "a.tar", members + again))
    read = [(entry.key, source.read(entry)) for entry in entries(source)]
    assert [(key, raw.caption) for key, raw in read] == [("a", "A"), ("a", "again"), ("b", "B")]
    assert [raw.image for _, raw in read] == [picture(0), picture(2), picture(1)]


def test_files_that_are_no_samples_are_left_out_and_samples_without_an_image_are_listed(tmp_path: Path) -> None:
    others = ["._0.txt", "__meta__/a.json", "1.txt", "2.txt", "2.npy", "README"]
    source = opened(tar(tmp_path / "a.tar", {"0.jpg": picture(0), **dict.fromkeys(others, b"")}))
    read = {entry.key: outcome(source, entry) for entry in entries(source)}
    assert isinstance(read.pop("0"), Raw)
    assert read == {
        "1": (Reason.MISSING, "no image among its members (txt)"),
        "2": (Reason.MISSING, "no image among its members (npy, txt)"),
        "README": (Reason.MISSING, "no image among its members (one without an ending)"),
    }


def test_the_first_ending_of_the_settings_is_the_image(tmp_path: Path) -> None:
    members = {"0.JPG": picture(0), "0.png": picture(1, "PNG"), "0.raw": picture(2, "PNG")}
    assert one(tmp_path, members, image=["png", "jpg"]).image == members["0.png"]
    assert one(tmp_path, members, image=["webp", "jpg"]).image == members["0.JPG"]


FURTHER = "its sample has a .jpg, which is read (`webdataset.image`)"


@pytest.mark.parametrize("repack", [False, True])
def test_images_that_are_not_read_are_listed_by_name(tmp_path: Path, repack: bool) -> None:
    members = {
        **{"q.jpg": picture(0), "q.v2.jpg": picture(1), "q.txt": b"q", "s.jpeg": picture(2), "s.jpg": picture(3)},
        **{
            "s.raw": b"",
            "s.mask.PNG": picture(4, "PNG"),
            "._s.jpg": b"",
            "a.gif": picture(5, "GIF"),
            "a.heic": b"",
            "a.txt": b"",
        },
    }
    source = opened(tar(tmp_path / "a.tar", members), repack=repack, image=["jpg", "raw"])
    read = {entry.where.removeprefix("a.tar: "): outcome(source, entry) for entry in entries(source)}
    assert {name: raw.image for name, raw in read.items() if isinstance(raw, Raw)} == {
        "q": members["q.jpg"],
        "s": members["s.jpg"],
    }
    assert {name: why for name, why in read.items() if isinstance(why, tuple)} == {
        "._s.jpg": (Reason.PASSED_OVER, "hidden, or metadata of the shard"),
        **dict.fromkeys(["q.v2.jpg", "s.jpeg", "s.mask.PNG", "s.raw"], (Reason.PASSED_OVER, FURTHER)),
        **dict.fromkeys(["a.gif", "a.heic"], (Reason.MISSING, "its ending is none of `webdataset.image`")),
    }


def test_hard_links_are_read_and_members_that_lead_out_of_the_tar_are_listed(tmp_path: Path) -> None:
    members = [
        *[("0.jpg", picture(0)), ("0.txt", b"nought"), ("1.jpg", "0.jpg"), ("1.txt", "./0.txt"), ("2.jpg", "1.jpg")],
        *[("3.jpg", "4.jpg"), ("4.jpg", picture(4)), ("../5.jpg", picture(5)), ("/6.jpg", picture(6))],
    ]
    source = opened(tar(tmp_path / "a.tar", members))
    read = {entry.where.removeprefix("a.tar: "): outcome(source, entry) for entry in entries(source)}
    images = {name: (raw.image, raw.caption) for name, raw in read.items() if isinstance(raw, Raw)}
    first = picture(0)
    assert images == {"0": (first, "nought"), "1": (first, "nought"), "2": (first, None), "4": (picture(4), None)}
    assert {name: why for name, why in read.items() if isinstance(why, tuple)} == {
        "3.jpg": (Reason.UNREADABLE, "a hard link to `4.jpg` (no earlier member)"),
        "../5.jpg": (Reason.UNREADABLE, "a path with `..`"),
        "/6.jpg": (Reason.UNREADABLE, "an absolute path"),
    }


stems = st.sampled_from(["a", "b", "d/a", "d.v1/b", "", ".h", "__m__/a", "../a", "/a", "ü b"])
endings = st.sampled_from(
    ["jpg", "JPG", "jpeg", "v2.jpg", "png", "mask.png", "gif", "tif", "txt", "json", "jpg.txt", ""]
)
names = st.builds(lambda stem, ending: f"{stem}.{ending}", stems, endings)


@hypothesis_settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(names, st.none() | names), max_size=12))
def test_every_image_of_a_tar_is_stored_or_listed(
    tmp_path_factory: pytest.TempPathFactory, members: list[tuple[str, str | None]]
) -> None:
    """Members are files, or hard links to a name."""
    data = [(name, picture(number) if target is None else target) for number, (name, target) in enumerate(members)]
    source = opened(tar(tmp_path_factory.getbasetemp() / "images.tar", data), label=None)
    read = [(entry.where.removeprefix("images.tar: "), entry.payload) for entry in entries(source)]
    is_image = [name for name, _ in members if name.lower().endswith((".jpg", ".jpeg", ".png", ".gif", ".tif"))]
    stored = [f"{where}.{payload.ending}".lower() for where, payload in read if not isinstance(payload, Finding)]
    listed = [where.lower() for where, payload in read if isinstance(payload, Finding)]
    named = [name for name in listed if name.endswith((".jpg", ".jpeg", ".png", ".gif", ".tif"))]
    assert sorted([*stored, *named]) == sorted(name.lower() for name in is_image)


# --- labels ---

CLASSES = ["cat", "dog"]


@pytest.mark.parametrize(
    ("members", "label", "classes", "expected", "reasons"),
    [
        ({"cls": b"1"}, "cls", CLASSES, "dog", []),
        ({"cls": b" 1\n"}, "cls", CLASSES, "dog", []),
        ({"cls": b"2"}, "cls", CLASSES, "2", [Reason.LABEL_OUT_OF_RANGE]),
        ({"cls": b"-1"}, "cls", CLASSES, "-1", [Reason.LABEL_OUT_OF_RANGE]),
        ({"cls": b"9" * 30}, "cls", CLASSES, "9" * 30, [Reason.LABEL_OUT_OF_RANGE]),
        ({"cls": b"dog"}, "cls", CLASSES, "dog", []),
        ({"cls": b"cow"}, "cls", CLASSES, "cow", [Reason.LABEL_OUT_OF_RANGE]),
        ({"cls": b"7"}, "cls", None, "7", []),
        ({"cls": b""}, "cls", None, None, [Reason.LABEL_MISSING]),
        ({"cls": b"\xff"}, "cls", None, None, [Reason.LABEL_MISSING]),
        ({}, "cls", None, None, [Reason.LABEL_MISSING]),
        ({}, None, None, None, []),
        ({"json": b'{"l": 1}'}, "json:l", CLASSES, "dog", []),
        ({"json": b'{"l": 1.0}'}, "json:l", CLASSES, "dog", []),
        ({"json": b'{"l": "cat"}'}, "json:l", CLASSES, "cat", []),
        ({"json": b'{"l": null}'}, "json:l", CLASSES, None, [Reason.LABEL_MISSING]),
        ({"json": b'{"l": [1]}'}, "json:l", CLASSES, None, [Reason.LABEL_MISSING]),
        ({"json": b'{"l": NaN}'}, "json:l", CLASSES, None, [Reason.LABEL_MISSING]),
        ({"json": b'{"l": "\\ud83d"}'}, "json:l", None, None, [Reason.LABEL_MISSING]),
        ({"json": b"[1]"}, "json:l", CLASSES, None, [Reason.LABEL_MISSING]),
        ({"json": b'{"l": 1'}, "json:l", CLASSES, None, [Reason.LABEL_MISSING]),
        ({"json": b"[" * 100_000}, "json:l", CLASSES, None, [Reason.LABEL_MISSING]),
    ],
)
def test_labels(tmp_path: Path, members: dict, label: str, classes: list, expected: str, reasons: list) -> None:
    named = {"0.jpg": picture(0), **{f"0.{ending}": data for ending, data in members.items()}}
    raw = one(tmp_path, named, label=label, classes=classes, caption=None)
    assert (raw.label, found(raw)) == (expected, reasons)


def test_classes_that_could_be_taken_for_numbers_are_refused() -> None:
    values = settings().model_dump()
    assert validate(Settings, {**values, "classes": ["0", "1"]}).classes == ["0", "1"]
    with pytest.raises(DarkroomError, match="class '5' is at position 0"):
        validate(Settings, {**values, "classes": ["5", "7"]})


@pytest.mark.parametrize("changes", [{"label": "json:"}, {"image": []}, {"image": [".jpg"]}, {"caption": "a/b"}])
def test_settings_that_name_nothing_are_refused(changes: dict) -> None:
    with pytest.raises(DarkroomError, match=next(iter(changes))):
        validate(Settings, {**settings().model_dump(), **changes})


# --- captions ---


@pytest.mark.parametrize(
    ("members", "caption", "expected", "reasons"),
    [
        ({"txt": "größer\n".encode()}, "txt", "größer", []),
        ({"txt": b"gr\xf6\xdfer"}, "txt", "größer", [Reason.CAPTION_NOT_UTF8]),
        ({"txt": b" "}, "txt", None, [Reason.CAPTION_MISSING]),
        ({}, "txt", None, [Reason.CAPTION_MISSING]),
        ({}, None, None, []),
        ({"json": '{"c": "größer"}'.encode()}, "json:c", "größer", []),
        ({"json": b'{"c": "a \\ud83d"}'}, "json:c", "a ?", [Reason.CAPTION_NOT_UTF8]),
        ({"json": b'{"c": ""}'}, "json:c", None, [Reason.CAPTION_MISSING]),
        ({"json": b'{"c": ["a"]}'}, "json:c", None, [Reason.CAPTION_MISSING]),
        ({"json": b'{"c": [{"from": "gpt", "value": "<image>\\na cat"}]}'}, "json:c", "a cat", []),
        ({"json": b'{"c": [{"from": "human", "value": "what?"}]}'}, "json:c", None, [Reason.CAPTION_MISSING]),
        ({"txt": b"a c\0at"}, "txt", "a cat", [Reason.CAPTION_NOT_UTF8]),
        ({"json": b"{"}, "json:c", None, [Reason.CAPTION_MISSING]),
    ],
)
def test_captions(tmp_path: Path, members: dict, caption: str, expected: str, reasons: list) -> None:
    named = {"0.jpg": picture(0), **{f"0.{ending}": data for ending, data in members.items()}}
    raw = one(tmp_path, named, label=None, caption=caption)
    assert (raw.caption, found(raw)) == (expected, reasons)
    (raw.caption or "").encode()


# --- damage ---


def cut(path: Path, member: str) -> None:
    """Cut a tar before a member, at its boundary."""
    with tarfile.open(path) as file:
        offset = file.getmember(member).offset
    path.write_bytes(path.read_bytes()[:offset])


def order(path: Path) -> list[str]:
    with tarfile.open(path) as file:
        return [name.removesuffix(".jpg") for name in file.getnames() if name.endswith(".jpg")]


def test_a_damaged_shard_stops_with_shard_byte_and_what_to_do(tmp_path: Path) -> None:
    img2dataset(tmp_path / "laion")
    path = tmp_path / "laion" / "00001.tar"
    cut(path, f"{order(path)[5]}.jpg")
    with pytest.raises(DarkroomError) as caught:
        entries(opened(tmp_path / "laion"))
    message = str(caught.value)
    assert message.startswith(f"00001.tar is damaged, at byte {path.stat().st_size:,} of {path.stat().st_size:,}: ")
    assert "can be read: 15" in message
    assert "`webdataset.damaged_shard` to quarantine" in message


def test_a_damaged_shard_in_quarantine_gives_what_is_before_and_lists_the_damage(tmp_path: Path) -> None:
    folder = tmp_path / "laion"
    img2dataset(folder)
    path = folder / "00001.tar"
    keys = order(path)
    cut(path, f"{keys[5]}.jpg")
    source = opened(folder, damaged_shard="quarantine")
    every = entries(source, 1)
    read = [(entry.key, outcome(source, entry)) for entry in every]
    assert sorted(key for key, raw in read if isinstance(raw, Raw)) == sorted(keys[:5])
    reasons = Counter(raw[0] for _, raw in read if isinstance(raw, tuple))
    assert reasons == {Reason.DAMAGED_SHARD: 1}
    assert (every[-1].key, every[-1].where) == ("00001", "00001.tar")


def test_a_hostile_shard_is_refused_whatever_the_rule(tmp_path: Path) -> None:
    tar(tmp_path / "a.tar", {"0.jpg": picture(0), "0.pyd": b""})
    with pytest.raises(DarkroomError, match=r"a\.tar: the member `0.pyd` is a pickle"):
        entries(opened(tmp_path, damaged_shard="quarantine"))


@hypothesis_settings(max_examples=25, deadline=None)
@given(st.data())
def test_all_comes_out_or_the_damage_is_listed_wherever_a_shard_is_cut(
    tmp_path_factory: pytest.TempPathFactory, data: Any
) -> None:
    folder = tmp_path_factory.getbasetemp() / "property"
    if not folder.is_dir():
        img2dataset(folder, shards=1)
        shutil.copy(folder / "00000.tar", folder / "whole")
    whole = (folder / "whole").read_bytes()
    (folder / "00000.tar").write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    source = opened(folder, damaged_shard="quarantine")
    read = [outcome(source, entry) for entry in entries(source)]
    images = sum(isinstance(raw, Raw) for raw in read)
    assert images == 8 or (Reason.DAMAGED_SHARD in [raw[0] for raw in read if isinstance(raw, tuple)])


def test_a_tar_that_shrinks_while_it_is_read_is_truncated(tmp_path: Path) -> None:
    path = tar(tmp_path / "a.tar", {"0.jpg": picture(0), "1.jpg": picture(1)})
    source = opened(path)
    _, second = entries(source)
    path.write_bytes(path.read_bytes()[:1500])
    assert outcome(source, second) == (Reason.TRUNCATED, "the tar became shorter while it was read")


def test_a_text_as_large_as_a_film_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("darkroom.data.sources.webdataset.LONGEST", 5)
    source = opened(tar(tmp_path / "a.tar", {"0.jpg": picture(0), "0.txt": b"longer"}))
    (entry,) = entries(source)
    assert outcome(source, entry) == (Reason.BOMB, "a txt of 6 bytes")


# --- where they are ---


def test_shards_behind_urls_are_those_of_the_folder(tmp_path: Path) -> None:
    img2dataset(tmp_path / "laion", shards=3)
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    for file in (tmp_path / "laion").iterdir():
        memory.pipe_file(f"/bucket/{file.name}", file.read_bytes())
    url = "memory://bucket/{00000..00001}.tar::memory://bucket/00002.tar"
    source = pickle.loads(pickle.dumps(opened(None, url=url)))
    local = opened(tmp_path / "laion")
    ours, theirs = entries(source), entries(local)
    assert [entry.key for entry in ours] == [entry.key for entry in theirs]
    assert ours[0].where == "memory://bucket/00000.tar: 000000000"
    assert [outcome(source, entry) for entry in ours] == [outcome(local, entry) for entry in theirs]
    assert source.metadata() == {"shards": 3, "url": url}
    plain = opened(None, url=str(tmp_path / "laion" / "{00000..00002}.tar"))
    assert entries(plain) == theirs


def test_exactly_one_of_path_and_url(tmp_path: Path) -> None:
    with pytest.raises(DarkroomError, match="this one has neither"):
        opened(None)
    with pytest.raises(DarkroomError, match="this one has both"):
        opened(tmp_path, url="s3://bucket/0.tar")


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("s3://b/{0..2.tar", "unbalanced braces"),
        ("s3://b/0.tar::pipe:cat 1.tar", "never run"),
        ("{p,x}ipe:cat", "never run"),
    ],
)
def test_urls_that_are_not_allowed(url: str, what: str) -> None:
    with pytest.raises(DarkroomError, match=what):
        opened(None, url=url)


def test_folders_without_tars_are_named(tmp_path: Path) -> None:
    with pytest.raises(DarkroomError, match="has no tar"):
        opened(tmp_path)
    with pytest.raises(DarkroomError, match="none does not exist"):
        opened(tmp_path / "none")


def test_a_page_that_says_it_is_not_there_is_damaged_not_empty(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"<html>404</html>" + bytes(2048))
    with pytest.raises(DarkroomError, match="at byte 0 of"):
        entries(opened(tmp_path))
