import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from dvc.cli import main as dvc
from hypothesis import given, settings
from hypothesis import strategies as st

from darkroom.artifacts.manifest import read_manifest, sha256_file, write_manifest
from darkroom.check.check import read_params
from darkroom.cli import main
from darkroom.data.layout import KIND, SHARDS
from darkroom.tools.verify.problems import Problem, lines, remake
from data.embeddings_made import make_embeddings
from data.making import RULES, make_latents
from data.making_tars import img2dataset, picture
from data.making_tars import tar as write_tar
from tools.verify.making import ROOT, catalogue, configure, index_in_place, rows_of, said


def rewritten(folder: Path, kind: str, change: Callable[[dict], None]) -> None:
    """Change a manifest as a program would, seal and all."""
    manifest = read_manifest(folder, kind)
    change(manifest)
    metadata = {key: value for key, value in manifest.items() if key not in ("kind", "format", "seal")}
    write_manifest(folder, kind, **metadata)


def test_a_sound_project_is_sound(made: Path) -> None:
    code, text = said("verify")
    assert code == 0
    first, second, catalog, outputs = text.splitlines()
    assert first.startswith("first    30 images in 6 shards, 30 latents, ") and first.endswith("/s: sound")
    assert second.startswith("second   12 images in ") and second.endswith(": sound")
    assert catalog == "catalog  2 parts: sound" and outputs == "outputs  none in dvc.lock, as no stage has run"
    assert said("verify", "second")[1].splitlines()[0].startswith("second   12 images")
    assert len(said("verify", "second")[1].splitlines()) == 3


def test_a_manifest_of_another_structure_is_reported(made: Path) -> None:
    """As another version wrote it, seal and all."""
    rewritten(SHARDS / "first", KIND, lambda manifest: manifest.pop("splits"))
    code, text = said("verify")
    assert code == 1 and "first/manifest.json: has another structure (no `splits`)" in text
    assert "second   12 images in " in text


def test_it_answers_without_torch(made: Path) -> None:
    script = (
        "import sys; from darkroom.cli import main; codes = [main(['data', 'verify']), main(['data', 'show'])];"
        "sys.exit(3 if 'torch' in sys.modules else any(codes))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    assert subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True).returncode == 0


@given(st.data())
@settings(max_examples=80)
def test_any_flipped_bit_is_found_in_its_file(small: Path, data: st.DataObject) -> None:
    before = Path.cwd()
    os.chdir(small)
    files = sorted(path for path in Path("data").rglob("*") if path.is_file())
    path = data.draw(st.sampled_from(files))
    content = path.read_bytes()
    at, bit = data.draw(st.integers(0, len(content) - 1)), data.draw(st.integers(0, 7))
    try:
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :])
        code, text = said("verify")
        assert code == 1
        assert f"{path}:" in text, text
    finally:
        path.write_bytes(content)
        os.chdir(before)


def test_every_missing_file_is_named(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(small)
    for path in sorted(path for path in Path("data").rglob("*") if path.is_file()):
        path.rename("away")
        code, text = said("verify")
        assert code == 1 and f"{path}: " in text, (path, text)
        Path("away").rename(path)
    assert said("verify")[0] == 0


def damage(path: Path, at: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + len(data)] = data
    path.write_bytes(content)


def test_every_fault_of_a_tar_is_listed_with_its_key_and_what_to_do(made: Path) -> None:
    folder = SHARDS / "first/train"
    tar = folder / "00000.tar"
    rows = pq.ParquetFile(folder / "index.parquet").read_row_group(0).to_pylist()
    with tarfile.open(tar) as opened:
        members = {member.name: member for member in opened}
    caption = next(row["key"] for row in rows if row["caption"])
    damage(tar, rows[0]["offset"] + 30, b"\0\0\0\0")  # an image
    damage(tar, rows[2]["offset"] - 512, b"?")  # the header of another
    damage(tar, members[f"{caption}.txt"].offset_data, b"N")  # a caption
    text = said("verify", "first")[1]
    again = remake(SHARDS / "first", "ingest@first")
    assert f"{tar}: is damaged: its sha256 is not that of the manifest: {again}." in text
    assert f"{tar}: image {rows[0]['key']} is damaged: its sha256 is not that of the index: {again}." in text
    assert f"{tar}: image {rows[2]['key']} has no .png, or its header is damaged: {again}." in text
    assert f"{tar}: image {caption} has another .txt than the index says: {again}." in text
    assert "has no header where one must be (at byte" in text
    assert text.splitlines()[0].endswith(": 5 faults")
    assert rows[1]["key"] not in text and rows[3]["key"] not in text


def test_a_tar_that_is_cut_off(made: Path) -> None:
    folder = SHARDS / "first/train"
    tar = folder / "00000.tar"
    rows = pq.ParquetFile(folder / "index.parquet").read_row_group(0).to_pylist()
    tar.write_bytes(tar.read_bytes()[: rows[-1]["offset"] + 10])
    text = said("verify", "first")[1]
    assert f"{tar}: has another size (" in text and "it is cut off" in text
    assert f"image {rows[-1]['key']} is damaged" in text


def test_an_index_that_agrees_with_its_manifest_but_not_with_the_tars(made: Path) -> None:
    path = SHARDS / "first/train/index.parquet"
    file = pq.ParquetFile(path)
    groups = [file.read_row_group(number) for number in range(file.num_row_groups)]
    rows = groups[0].to_pylist()
    keys = [row["key"] for row in rows]
    rows[0]["label"] = "another"
    rows[1]["sha256"] = bytes(32)
    rows[2]["offset"] = rows[3]["offset"]
    rows[4]["key"] = keys[5]
    rows[6]["width"] = 7
    groups[0] = pa.Table.from_pylist(rows, schema=groups[0].schema)
    with pq.ParquetWriter(path, groups[0].schema) as writer:
        for group in groups:
            writer.write_table(group)
    rewritten(SHARDS / "first", KIND, lambda m: m["splits"]["train"].update(index_sha256=sha256_file(path)))
    code, text = said("verify", "first")
    tar = SHARDS / "first/train/00000.tar"
    for line in (
        f"{path}: has other labels than the manifest counts",
        f"{tar}: image {keys[0]} has another .cls than the index says",
        f"{tar}: image {keys[1]} is damaged",
        f"{path}: image {keys[3]} lies over another one in its tar (shard 00000)",
        f"{tar}: image {keys[2]} is not where the index says",
        f"{path}: image {keys[5]} has a key that comes more than once in the part",
        f"{tar}: has a member that is not in the index, or twice ({keys[4]}.json)",
        f"{path}: image {keys[6]} has a size that the manifest does not allow",
        "data/latents/first/manifest.json: says that they were made from other images",
        f"data/latents/first/train/index.parquet: image {keys[4]} has another key than the same row of",
        "data/shards/first/manifest.json: is not the manifest that the catalog was made from",
    ):
        assert line in text, line
    assert code == 1


def test_other_shares_of_the_splits_are_found_and_not_all_listed(made: Path) -> None:
    values = read_params(Path("params.yaml"))
    values["ingest"]["splits"] = {"train": 0.0001, "val": 0.0, "test": 0.9999}
    Path("params.yaml").write_text(yaml.safe_dump(values))
    code, text = said("verify", "first")
    what = "is in another split than `ingest.splits` and `ingest.split_seed` give"
    moved = sum(len(pq.read_table(SHARDS / "first" / split / "index.parquet")) for split in ("train", "val"))
    listed = [line for line in text.splitlines() if what in line and "image noise-" in line]
    assert code == 1
    assert f"{moved} faults" in text
    assert all("`dvc repro ingest@first`" in line for line in listed)
    assert len(listed) == moved <= 20


def test_of_many_faults_of_a_kind_the_first_are_listed() -> None:
    found = list(lines(Problem("a", "is wrong", "do", f"k{number}") for number in range(25)))
    assert found[0] == "a: image k0 is wrong: do." and found[19] == "a: image k19 is wrong: do."
    assert found[20:] == ["a: 5 more images of which each is wrong."]


def test_counts_of_the_list_of_damage(made: Path) -> None:
    folder = SHARDS / "first"
    rewritten(folder, KIND, lambda m: m["quarantine"].update(quarantine={"truncated": 3}))
    assert "data/shards/first/quarantine.parquet: has other counts than the manifest" in said("verify", "first")[1]


def test_latents_of_other_images_and_of_another_tokenizer(made: Path) -> None:
    make_latents(SHARDS, Path("data/latents"), "second", tokenizer="u" * 64)
    code, text = said("verify")
    assert code == 1
    assert "data/latents/second/manifest.json: was made by another tokenizer than the others" in text
    rewritten(Path("data/latents/first"), "latents", lambda m: m.update(shards="0" * 64))
    assert "first/manifest.json: says that they were made from other images than data/shards/first" in said("verify")[1]


def test_embeddings_are_checked_as_latents_are(made: Path) -> None:
    folder = Path("data/embeddings")
    for part in ("first", "second"):
        make_embeddings(SHARDS, folder, part, store=("train", "test"))
    code, text = said("verify")
    manifest = read_manifest(folder / "first", "embeddings")
    stored = sum(manifest["splits"][split]["images"] for split in ("train", "test"))
    assert code == 0 and text.startswith(f"first    30 images in 6 shards, 30 latents, {stored} embeddings, ")
    file = folder / "first/train/text_emb_00000.npy"
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    code, text = said("verify")
    assert code == 1 and f"{file}: is damaged: its sha256 is not that of the manifest" in text
    file.unlink()
    assert f"{file}: is missing" in said("verify")[1]
    make_embeddings(SHARDS, folder, "second", clip="d" * 64)
    assert "second/manifest.json: was made by another CLIP than the others" in said("verify")[1]
    rewritten(folder / "first", "embeddings", lambda m: m.update(shards="0" * 64))
    assert "first/manifest.json: says that they were made from other images than data/shards/first" in said("verify")[1]


def test_embeddings_of_other_rows_are_found_with_their_key(made: Path) -> None:
    make_embeddings(SHARDS, Path("data/embeddings"), "second")
    shutil.move("data/embeddings/second", "data/embeddings/first")
    text = said("verify")[1]
    assert "first/manifest.json: is of another part" in text
    assert "index.parquet: has another" in text and "row" in text


def test_the_catalog_says_what_its_parts_say(made: Path) -> None:
    def change(manifest: dict) -> None:
        manifest["counts"]["train"]["3"] += 1
        manifest["captions"]["val"] += 1

    rewritten(Path("data/catalog"), "catalog", change)
    code, text = said("verify")
    assert code == 1 and "catalog  2 parts: 2 faults" in text
    assert (
        "data/catalog/manifest.json: has other `counts` than its parts: make it again with `dvc repro catalog`" in text
    )
    assert "data/catalog/manifest.json: has other `captions` than its parts" in text
    configure("first", "second", "third")
    text = said("verify")[1]
    assert "third    not there: `dvc repro ingest@third` makes it" in text
    assert "data/catalog/manifest.json: is of other parts than params.yaml names (first, second; params.yaml: " in text


def test_left_over_folders_are_named(made: Path) -> None:
    configure("first")
    catalogue("first")
    code, text = said("verify")
    assert code == 0
    assert text.splitlines()[-1].startswith("data/shards/second, data/latents/second: of no part in params.yaml;")


def test_outputs_of_every_stage_or_of_a_part_are_checked(made: Path) -> None:
    Path("models").mkdir()
    Path("models/x").write_text("weights")
    ingest = {"cmd": "true", "outs": ["data/shards/${key}"]}
    stages = {"ingest": {"foreach": "${parts}", "do": ingest}, "train": {"cmd": "true", "outs": ["models/x"]}}
    Path("dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
    assert dvc(["init", "-q", "--no-scm"]) == dvc(["commit", "-q", "-f"]) == 0
    code, text = said("verify")
    assert code == 0 and text.splitlines()[-1] == "outputs  3 of dvc.lock: sound"
    Path("models/x").write_text("Weights")
    (SHARDS / "first/notes.txt").touch()
    code, text = said("verify")
    assert code == 1 and "outputs  3 of dvc.lock: 2 faults" in text
    assert "  models/x: is not what dvc.lock records: delete it and restore it with `dvc checkout models/x`" in text
    assert "  data/shards/first/notes.txt: is of no output, and nothing reads it: delete it." in text
    assert "outputs  1 of dvc.lock: 1 fault" in said("verify", "first")[1]
    assert said("verify", "second")[0] == 0


def test_a_part_that_nobody_knows(made: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["data", "verify", "frist"]) == 1
    assert "params.yaml has no part `frist`; did you mean `first`?" in capsys.readouterr().err


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a project whose params.yaml has one part, and return a folder of img2dataset beside it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    configure("first")
    img2dataset(Path("laion"), shards=2, rows=12)
    return Path("laion")


def test_a_part_that_is_indexed_in_place(elsewhere: Path) -> None:
    index_in_place("first", elsewhere)
    code, text = said("verify")
    assert code == 0 and text.startswith("first    20 images in 2 shards, ")
    tar = elsewhere / "00001.tar"
    content = tar.read_bytes()
    row = next(row for row in rows_of("first", "test") if row["key"].startswith("00001"))
    damage(tar, row["offset"] + 40, b"\0\0\0")
    code, text = said("verify")
    assert code == 1 and "00000.tar" not in text
    assert f"{tar}: is damaged: its sha256 is not that of the manifest: it changed since it was indexed" in text
    assert f"{tar}: image {row['key']} is damaged: its sha256 is not that of the index" in text
    damage(tar, row["offset"] - 512, bytes(512))
    assert f"{tar}: image {row['key']} is not where the index says" in said("verify")[1]
    tar.write_bytes(content[:-1])
    assert f"{tar}: has another size" in said("verify")[1]
    tar.unlink()
    assert f"{tar}: is missing: it changed since it was indexed; put the old file back" in said("verify")[1]


def test_hard_links_that_are_indexed_in_place_are_sound_and_each_is_checked(elsewhere: Path) -> None:
    linked = {f"{number}.jpg": "0.jpg" for number in range(1, 9)}
    path = write_tar(elsewhere.parent / "a.tar", [("0.jpg", picture(0)), *linked.items(), ("9.jpg", picture(9))])
    index_in_place("first", path, {**RULES, "duplicate": "keep"}, label=None)
    assert said("verify")[0] == 0
    damage(path, rows_of("first", "train")[0]["offset"] + 40, b"\0\0\0")
    text = said("verify")[1]
    assert [f"image {number} is damaged" in text for number in range(10)] == [True] * 9 + [False]


def test_remote_tars_are_read_where_that_is_asked_for(elsewhere: Path) -> None:
    memory = fsspec.filesystem("memory")
    for path in elsewhere.glob("*.tar"):
        memory.pipe_file(f"/laion/{path.name}", path.read_bytes())
    try:
        index_in_place("first", None, url="memory://laion/{00000..00001}.tar")
        content = memory.cat_file("/laion/00000.tar")
        memory.pipe_file("/laion/00000.tar", content[:-2000] + b"?" + content[-1999:])
        code, text = said("verify")
        assert code == 0 and "2 remote shards not read (`--remote` reads them)" in text
        code, text = said("verify", "--remote")
        assert code == 1
        assert "memory://laion/00000.tar: is damaged: its sha256 is not that of the manifest" in text
        memory.pipe_file("/laion/00000.tar", content)
        assert said("verify", "--remote")[0] == 0
        memory.rm_file("/laion/00000.tar")
        assert "memory://laion/00000.tar: " in said("verify", "--remote")[1]
    finally:
        memory.rm("/laion", recursive=True)


def test_what_is_indexed_in_place_is_shown_once(elsewhere: Path) -> None:
    index_in_place("first", elsewhere)
    code, text = said("show")
    assert code == 0 and "read where they lie, not copied: first" in text
    (part,) = json.loads(said("show", "--json", "--images", "0")[1])["parts"]
    assert (part["shards"], part["bytes"]) == (2, sum(path.stat().st_size for path in elsewhere.glob("*.tar")))
    catalogue("first")
    (part,) = read_manifest(Path("data/catalog"), "catalog")["parts"]
    assert (part["shards"], part["bytes"]) == (2, sum(path.stat().st_size for path in elsewhere.glob("*.tar")))
    assert said("verify")[0] == 0
