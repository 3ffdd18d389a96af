import errno
import json
import os
import pickle
import random
import unicodedata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from darkroom.data.damage import DamageError, Finding, Reason
from darkroom.data.decoding import FORMATS
from darkroom.data.keys import key_of, shown
from darkroom.data.sample import Raw
from darkroom.data.shards import KEY
from darkroom.data.sources import open_source, walk
from darkroom.data.sources.captions import answer_of, caption_of
from darkroom.data.sources.folder import Folder
from darkroom.data.sources.walk import passed_over, passed_over_text
from darkroom.errors import DarkroomError
from darkroom.params.parts import Folder as Settings
from darkroom.params.parts import Part

SETTINGS = {
    "label": "none",
    "label_column": "label",
    "caption": "none",
    "caption_column": "text",
    "classes": None,
    "mirror": False,
}


def source(folder: Path, **changes: Any) -> Folder:
    return Folder(Settings(**{**SETTINGS, **changes}), folder)


def image(path: Path, colour: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (4, 4), colour).save(path, "PNG")
    return path


def listed(found: Folder) -> dict[str, str]:
    return {entry.where: entry.key for entry in found.entries(0, None)}


def read(found: Folder) -> dict[str, Raw | DamageError]:
    """What becomes of each entry, by where it is."""
    outcomes: dict[str, Raw | DamageError] = {}
    for entry in found.entries(0, None):
        try:
            outcomes[entry.where] = found.read(entry)
        except DamageError as error:
            outcomes[entry.where] = error
    return outcomes


def reasons(found: Folder) -> dict[str, list[Reason]]:
    return {
        where: [one.reason] if isinstance(one, DamageError) else [finding.reason for finding in one.findings]
        for where, one in read(found).items()
    }


# What is listed


def test_images_are_found_by_their_endings_in_any_case_and_at_any_depth(tmp_path: Path) -> None:
    for name in ("b.JPG", "a/deep/er/c.webp", "a/x.Png", "one.jpeg", "dots.in.name.tiff"):
        image(tmp_path / name)
    (tmp_path / "a/readme.md").touch()
    (tmp_path / "Thumbs.DB").touch()
    (tmp_path / "a/Thumbs.db").touch()
    (tmp_path / "LICENSE").touch()
    (tmp_path / "empty").mkdir()
    image(tmp_path / ".hidden.png")
    image(tmp_path / ".git/x.png")
    image(tmp_path / "__MACOSX/a/._x.png")
    found = source(tmp_path)
    assert sorted(listed(found)) == ["a/deep/er/c.webp", "a/x.Png", "b.JPG", "dots.in.name.tiff", "one.jpeg"]
    assert found.size() == 5
    assert found.metadata() == {
        "files": 5,
        "aside": {"__MACOSX": 1, "hidden": 2},
        "aside_images": 3,
        "ignored": {".db": 2, "": 1, ".md": 1},
        "loops": 0,
    }
    raw = found.read(next(found.entries(2, 3)))
    assert raw.identity == raw.image == (tmp_path / "b.JPG").read_bytes()


def test_keys_ascend_and_do_not_depend_on_the_place_or_the_order_of_listing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["Z.png", "a.png", "a/b.png", "a-b.png", "a b.png", "z/1.png", "z/2.png", "ä.png"]
    for place in ("here", "some where/else"):
        for name in names:
            image(tmp_path / place / name)
    first = list(source(tmp_path / "here").entries(0, None))
    scandir = os.scandir

    class Backwards:
        def __init__(self, folder: bytes) -> None:
            self._listing = scandir(folder)

        def __enter__(self) -> list[os.DirEntry[bytes]]:
            return list(self._listing)[::-1]

        def __exit__(self, *_: object) -> None:
            self._listing.close()

    monkeypatch.setattr(walk.os, "scandir", Backwards)
    found = source(tmp_path / "some where/else")
    assert list(found.entries(0, None)) == first
    assert [entry.key for entry in first] == sorted({entry.key for entry in first})
    assert len(first) == len(names)
    assert [*found.entries(0, 3), *found.entries(3, 7), *found.entries(7, None)] == first


paths = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]) | st.sampled_from("\udc80\udcff/ .-"))


@given(paths, paths)
def test_keys_are_allowed_and_differ(one: str, other: str) -> None:
    assert KEY.fullmatch(key_of(one))
    assert (key_of(one) == key_of(other)) == (one == other)


def test_a_plain_path_is_its_own_key_and_others_have_a_hash() -> None:
    assert key_of("IMG_0001-a") == "IMG_0001-a"
    assert key_of("k" * 80) == "k" * 80
    # blake2b of 5 bytes, made with b2sum -l 40
    assert key_of("cats/größe 1") == "cats-gr--e-1-5aab1cd1bd"
    assert len(key_of("k" * 81)) == 80 and key_of("k" * 81)[:69] == "k" * 69


def test_two_endings_share_a_key(tmp_path: Path) -> None:
    for name in ("a.png", "a.jpg", "b c.png", "b c.gif"):
        image(tmp_path / name)
    found = listed(source(tmp_path))
    assert list(found) == ["a.jpg", "a.png", "b c.gif", "b c.png"]
    assert found["a.jpg"] == found["a.png"] == "a"
    assert found["b c.gif"] == found["b c.png"]


def test_links_are_followed_loops_end_and_broken_ones_are_listed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    image(root / "a/1.png")
    image(tmp_path / "elsewhere/2.png", 9)
    (root / "out").symlink_to(tmp_path / "elsewhere")
    (root / "one.png").symlink_to(root / "a/1.png")
    (root / "a/up").symlink_to(root)
    (root / "a/self").symlink_to("self")
    (root / "gone.png").symlink_to(tmp_path / "nothing.png")
    (root / "gone-class").symlink_to(tmp_path / "nowhere")
    found = source(root, label="parent")
    assert reasons(found) == {
        "a/1.png": [],
        "a/self": [Reason.UNREADABLE],
        "gone-class": [Reason.UNREADABLE],
        "gone.png": [Reason.UNREADABLE],
        "one.png": [Reason.LABEL_MISSING],
        "out/2.png": [],
    }
    assert found.metadata()["loops"] == 1
    assert read(found)["out/2.png"].label == "out"


def test_what_is_called_an_image_and_is_none_is_listed(tmp_path: Path) -> None:
    image(tmp_path / "good.png")
    (tmp_path / "empty.jpg").mkdir()
    image(tmp_path / "full.jpg/inside.png")
    os.mkfifo(tmp_path / "pipe.png")  # reading it would wait for ever
    os.mkfifo(tmp_path / "pipe")
    found = source(tmp_path)
    assert reasons(found) == {
        "empty.jpg": [Reason.UNREADABLE],
        "full.jpg/inside.png": [],
        "good.png": [],
        "pipe.png": [Reason.UNREADABLE],
    }
    assert found.metadata()["ignored"] == {"": 1}


def test_a_caption_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        image(tmp_path / f"{name}.png")
    os.mkfifo(tmp_path / "a.txt")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "b.txt").symlink_to("pipe")
    (tmp_path / "c.txt").write_text("a thing")
    (tmp_path / "d.png").symlink_to("pipe")
    found = source(tmp_path, caption="txt")
    assert reasons(found) == {
        "a.png": [Reason.CAPTION_MISSING],
        "b.png": [Reason.CAPTION_MISSING],
        "b.txt": [Reason.UNREADABLE],  # a link with any ending: it may have led to images
        "c.png": [],
        "d.png": [Reason.UNREADABLE],
    }
    assert next(iter(found.entries(4, None))).payload == Finding(Reason.UNREADABLE, "not a regular file")


def test_what_cannot_be_read_says_why_and_names_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image(tmp_path / "a/1.png")
    image(tmp_path / "closed/2.png")
    found = source(tmp_path)
    scandir, opened = os.scandir, Path.open

    def closed(folder: bytes) -> Any:
        if folder.endswith(b"/closed"):
            raise PermissionError(errno.EACCES, "Permission denied", folder)
        return scandir(folder)

    def broken(path: Path, mode: str) -> Any:
        if path.name == "1.png":
            raise OSError(errno.EIO, "Input/output error", str(path))
        return opened(path, mode)

    monkeypatch.setattr(walk.os, "scandir", closed)
    monkeypatch.setattr(Path, "open", broken)
    outcomes = read(found)
    assert {where: str(error) for where, error in outcomes.items()} == {
        "a/1.png": "unreadable: Input/output error",
        "closed": "unreadable: the folder cannot be listed: Permission denied",
    }
    (tmp_path / "a/1.png").unlink()  # after it was listed
    assert reasons(found)["a/1.png"] == [Reason.UNREADABLE]


def test_folders_of_systems_are_never_classes_and_are_counted_with_what_is_in_them(tmp_path: Path) -> None:
    image(tmp_path / "cat/1.png")
    for name in ("@eaDir", "cat/@eaDir", "$RECYCLE.BIN", "System Volume Information", "lost+found", "#recycle"):
        image(tmp_path / name / "thumbs/1.jpg")
        (tmp_path / name / "x.db").touch()
    for name in (".git", ".Trashes", "cat/.ipynb_checkpoints"):
        image(tmp_path / name / "deep/2.png")
        (tmp_path / name / "deep/up").symlink_to(tmp_path)
    (tmp_path / "cat/.nomedia").touch()
    found = source(tmp_path, label="parent")
    assert {raw.label for raw in read(found).values()} == {"cat"} and found.size() == 1
    counts = found.metadata()
    names = {"#recycle": 2, "$RECYCLE.BIN": 2, "@eaDir": 4, "System Volume Information": 2, "lost+found": 2}
    assert counts["aside"] == {**names, "hidden": 4} and counts["aside_images"] == 9
    assert passed_over_text(passed_over(counts)) == [
        "hidden, or in folders of the system: @eaDir 4, hidden 4, #recycle 2, $RECYCLE.BIN 2, "
        "System Volume Information 2, lost+found 2; with an image's ending 9"
    ]
    image(tmp_path / "lost+found.png")  # a file may be called so
    assert source(tmp_path).size() == 2


def test_names_that_are_not_utf8_are_left_out_since_dvc_cannot_see_them(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"gr\xf6\xdfe")
    try:
        for number, name in enumerate((b"\xe4.png", b"\xe5.png", b"plain.png")):
            image(folder / os.fsdecode(name), number)
    except OSError:
        pytest.skip("this file system takes UTF-8 only")
    image(tmp_path / "größe/☃.png")
    found = source(tmp_path, label="parent")
    left_out = [f"gr\\xf6\\xdfe/{name}.png" for name in ("\\xe4", "\\xe5", "plain")]
    assert reasons(found) == {"größe/☃.png": [], **{name: [Reason.NAME_NOT_UTF8] for name in left_out}}
    assert len({entry.key for entry in found.entries(0, None)}) == 4
    for entry in found.entries(0, None):
        assert pickle.loads(pickle.dumps(entry)) == entry
        (entry.key + entry.where).encode()


def test_a_copy_in_another_process_is_small_and_reads(tmp_path: Path) -> None:
    for number in range(50):
        image(tmp_path / f"{number}.png", number)
    found = source(tmp_path)
    entries = list(found.entries(0, None))
    sent = pickle.dumps(found)
    assert len(sent) < 2000
    copy = pickle.loads(sent)
    assert [copy.read(entry) for entry in entries] == [found.read(entry) for entry in entries]
    assert len(pickle.dumps(entries[0])) < 300


def test_many_other_endings_are_summed(tmp_path: Path) -> None:
    image(tmp_path / "a.png")
    for number in range(30):
        (tmp_path / f"x.{number:02d}").touch()
    (tmp_path / "y.29").touch()
    ignored = source(tmp_path).metadata()["ignored"]
    assert ignored[".29"] == 2 and ignored[".18"] == 1
    assert ignored["others"] == 10 and len(ignored) == 21


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ({"path": "nowhere"}, "nowhere, does not exist"),
        ({"path": "file"}, "file, is not a folder"),
    ],
)
def test_a_part_without_a_folder_is_told(part: dict, told: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    with pytest.raises(DarkroomError, match=f"`path`.*{told}"):
        open_source(Part(source="folder", **part), Settings(**SETTINGS))


def test_a_folder_without_images_says_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").touch()
    (tmp_path / "b").touch()
    with pytest.raises(DarkroomError, match=r"no image files .*1 without ending, 1 \.pdf"):
        source(tmp_path).size()


# Labels


def test_labels_are_the_nearest_folder_or_the_first(tmp_path: Path) -> None:
    for name in ("root.png", "cat/1.png", "dog/puppy/2.png"):
        image(tmp_path / name)
    labels = {
        kind: [one.label for one in read(source(tmp_path, label=kind)).values()] for kind in ("none", "parent", "top")
    }
    # in the order of the keys: cat, dog, root
    assert labels == {"none": [None] * 3, "parent": ["cat", "puppy", None], "top": ["cat", "dog", None]}
    assert list(reasons(source(tmp_path, label="none")).values()) == [[], [], []]
    classes = reasons(source(tmp_path, label="parent", classes=["cat", "dog"]))
    assert classes == {
        "cat/1.png": [],
        "dog/puppy/2.png": [Reason.LABEL_OUT_OF_RANGE],
        "root.png": [Reason.LABEL_MISSING],
    }


def test_a_repeat_count_of_kohya_is_no_part_of_a_label(tmp_path: Path) -> None:
    for name in ("10_my cat/1.png", "1_a_b/2.png", "012_c/3.png", "dog/4.png"):
        image(tmp_path / name)
    labels = {
        repeats: {where: one.label for where, one in read(source(tmp_path, label="parent", repeats=repeats)).items()}
        for repeats in (False, True)
    }
    assert list(labels[False].values()) == ["012_c", "10_my cat", "1_a_b", "dog"]
    assert labels[True] == {
        "012_c/3.png": "012_c",
        "10_my cat/1.png": "my cat",
        "1_a_b/2.png": "a_b",
        "dog/4.png": "dog",
    }


# Captions


def test_captions_lie_beside_the_images(tmp_path: Path) -> None:
    texts = {
        "plain": b"a cat\n",
        "mark": "\ufeffgrößer".encode(),
        "lines": b"one\r\n two \r\n",
        "empty": b"",
        "blank": b" \n\t\n",
        "latin": "größer".encode("cp1252"),
        "wide": "größer".encode("utf-16"),
        "dots.in.name": b"dots",
    }
    for name, text in texts.items():
        image(tmp_path / "x" / f"{name}.png")
        (tmp_path / "x" / f"{name}.txt").write_bytes(text)
    image(tmp_path / "x/none.png")
    image(tmp_path / "x/loud.JPG")
    (tmp_path / "x/loud.TXT").write_text("loud")
    image(tmp_path / "x/folder.png")
    (tmp_path / "x/folder.txt").mkdir()
    (tmp_path / "x/orphan.txt").touch()
    found = source(tmp_path, caption="txt")
    captions = {Path(where).name: one.caption for where, one in read(found).items()}
    assert captions == {
        "plain.png": "a cat",
        "mark.png": "größer",
        "lines.png": "one\r\n two ",
        "empty.png": None,
        "blank.png": None,
        "latin.png": "größer",
        "wide.png": "größer",
        "dots.in.name.png": "dots",
        "none.png": None,
        "loud.JPG": "loud",
        "folder.png": None,
    }
    wrong = {Path(where).name: found for where, found in reasons(found).items() if found}
    assert wrong == {
        "empty.png": [Reason.CAPTION_MISSING],
        "blank.png": [Reason.CAPTION_MISSING],
        "none.png": [Reason.CAPTION_MISSING],
        "folder.png": [Reason.CAPTION_MISSING],
        "latin.png": [Reason.CAPTION_NOT_UTF8],
        "wide.png": [Reason.CAPTION_NOT_UTF8],
    }
    assert found.metadata()["ignored"] == {".txt": 1}  # the orphan: its image is gone
    assert source(tmp_path).metadata()["ignored"] == {".txt": 10}


def test_a_caption_may_be_called_after_the_whole_name_of_the_image(tmp_path: Path) -> None:
    for name in ("a.png", "b.png", "c.jpg", "c.webp"):
        image(tmp_path / name)
    for name in ("a.png", "b", "b.png", "c.jpg", "c.webp", "gone.png"):
        (tmp_path / f"{name}.txt").write_text(f"of {name}")
    found = source(tmp_path, caption="txt")
    captions = {where: raw.caption for where, raw in read(found).items()}
    assert captions == {"a.png": "of a.png", "b.png": "of b", "c.jpg": "of c.jpg", "c.webp": "of c.webp"}
    assert found.metadata()["ignored"] == {".txt": 2}  # b.png.txt, as b.txt is the caption; gone.png.txt


def test_captions_lie_in_caption_files_where_there_is_no_text_file(tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d"):
        image(tmp_path / f"{name}.png")
    for name in ("a.caption", "b.caption", "b.txt", "c.CAPTION", "d.png.caption", "e.caption"):
        (tmp_path / name).write_text(f"of {name}")
    found = source(tmp_path, caption="txt")
    captions = [raw.caption for raw in read(found).values()]
    assert captions == ["of a.caption", "of b.txt", "of c.CAPTION", "of d.png.caption"]
    assert found.metadata()["ignored"] == {".caption": 2}  # that of b, which has a text file; that of no image
    assert source(tmp_path).metadata()["ignored"] == {".caption": 5, ".txt": 1}


WIDE = ["a red cat", "größer, schöner", "кошка на столе", "बिल्ली मेज पर है", "一只猫坐在桌子上", "猫 です", "猫", "γάτα"]


@pytest.mark.parametrize("codec", ["utf-16", "utf-32"])
def test_utf16_is_read_by_its_mark(codec: str) -> None:
    expected = {text + end: (text, [Reason.CAPTION_NOT_UTF8]) for text in WIDE for end in ("\r\n", "")}
    found = {text: caption_of(text.encode(codec)) for text in expected}
    assert {
        text: (caption, [finding.reason for finding in findings]) for text, (caption, findings) in found.items()
    } == expected


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_utf16_without_its_mark_is_read_where_its_letters_are_latin(codec: str) -> None:
    for text in ("a red cat", "größer, schöner"):
        assert caption_of(text.encode(codec))[0] == text
    for text in ("кошка на столе", "γάτα", "חתול"):
        assert caption_of(text.encode(codec))[0] is None


def test_short_texts_in_utf8_are_captions() -> None:
    texts = ["7", "A!", "ok", "+s", "1\t2\t", ":-)", "#1 @ 50%", "é", "猫", "5 €", "½", "❤"]
    assert {text: caption_of(text.encode()) for text in texts} == {text: (text, ()) for text in texts}


def test_texts_in_windows_1252_are_captions() -> None:
    texts = ["Café $5", "Peter´s Käfer", "été = summer", "café | rouge", "señorita <3", "naïve, 1±2", "25 °C – 5 €"]
    texts += ["été", "Ein grüner Baum – schön", "L’été «très» chaud à Besançon", "über", "5 × 3 €", "© 25 °C"]
    assert [caption_of(text.encode("cp1252"))[0] for text in texts] == texts


CONVERSATIONS = [
    [
        {"from": "human", "value": "<image>\nwhat?"},
        {"from": "gpt", "value": "a cat <image>"},
        {"from": "gpt", "value": "x"},
    ],
    [{"role": "user", "content": "what?"}, {"role": "Assistant", "content": "<|image_pad|>a cat\0\n"}],
]


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize("turns", CONVERSATIONS, ids=["from", "role"])
def test_the_caption_of_a_conversation_is_its_first_answer(tmp_path: Path, kind: str, turns: list) -> None:
    for name in ("1.png", "2.png"):
        image(tmp_path / name)
    conversations = [turns, turns[:1]]
    if kind == "csv":
        lines = [
            f'{row}.png,"{json.dumps(each).replace(chr(34), chr(34) * 2)}"' for row, each in enumerate(conversations, 1)
        ]
        (tmp_path / "metadata.csv").write_text("\n".join(["file_name,conversations", *lines]))
    else:
        rows = [{"file_name": f"{row}.png", "conversations": each} for row, each in enumerate(conversations, 1)]
        write_table(tmp_path / f"metadata.{kind}", rows)
    found = source(tmp_path, caption="metadata", caption_column="conversations")
    assert [one.caption for one in read(found).values() if isinstance(one, Raw)] == ["a cat", None]
    assert reasons(found)["2.png"] == [Reason.CAPTION_MISSING]


@pytest.mark.parametrize("value", ["a cat", ["a cat"], [{"a": 1}], {"from": "gpt", "value": "x"}, 7, None])
def test_what_is_no_conversation_is_as_it_is(value: Any) -> None:
    assert answer_of(value) == value and answer_of([]) is None
    text = json.dumps(value)
    assert caption_of(text.encode()) == (text, ())


@given(st.text(st.characters(min_codepoint=32, exclude_categories=["Cs", "Cc"]), min_size=1), st.data())
def test_a_nul_at_any_place_of_a_text_in_utf8_is_removed(text: str, data: st.DataObject) -> None:
    whole = text.encode()
    place, count = data.draw(st.integers(0, len(whole))), data.draw(st.integers(1, 3))
    caption, findings = caption_of(whole[:place] + bytes(count) + whole[place:])
    assert caption == caption_of(whole)[0]
    assert caption is None or [finding.reason for finding in findings] == [Reason.CAPTION_NOT_UTF8]


def test_nuls_do_not_make_a_text_of_control_codes() -> None:
    text, findings = caption_of(b"a cat\0\0\0\x07dog")
    assert text is None and "not text" in findings[0].detail
    assert caption_of(bytes(4))[0] is None
    assert caption_of(b"a\tb\tc\0")[0] == "a\tb\tc" and caption_of("a\0b".encode("utf-16"))[0] == "ab"
    assert caption_of("größer, wärmer, schöner\0".encode("cp1252"))[0] == "größer, wärmer, schöner"
    assert caption_of("größer, wär\0mer, schöner".encode("cp1252"))[0] == "größer, wärmer, schöner"


def test_random_bytes_are_no_caption() -> None:
    draw = random.Random(0)
    for length in (32, 64, 1000):
        found = [caption_of(draw.randbytes(length)) for _ in range(200)]
        assert sum(text is not None for text, _ in found) <= 1
        assert {finding.reason for text, findings in found if text is None for finding in findings} == {
            Reason.CAPTION_MISSING
        }


@pytest.mark.parametrize("codec", ["cp1251", "shift-jis", "gbk"])
def test_other_encodings_are_refused_and_not_read_as_windows_1252(codec: str) -> None:
    text = {"cp1251": "кошка на столе", "shift-jis": "猫と日本語のテキスト", "gbk": "一只猫坐在桌子上"}[codec]
    assert caption_of(text.encode(codec))[0] is None


@given(st.binary())
def test_any_bytes_give_a_caption_or_a_reason(data: bytes) -> None:
    text, findings = caption_of(data)
    if text is None:
        assert [finding.reason for finding in findings] == [Reason.CAPTION_MISSING]
    else:
        assert text.encode().strip()
        assert bool(findings) == (b"\0" in data or data.decode(errors="ignore").encode() != data)


# Tables


def write_table(path: Path, rows: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jsonl":
        path.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    elif path.suffix == ".csv":
        columns = list(rows[0])
        lines = [columns, *([("" if row[name] is None else str(row[name])) for name in columns] for row in rows)]
        path.write_text("\n".join(",".join(line) for line in lines), encoding="utf-8-sig")
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_a_table_names_labels_and_captions(tmp_path: Path, kind: str) -> None:
    for name in ("1.png", "sub/2.png", "sub/deep/3.png", "4.png", "5.png"):
        image(tmp_path / name)
    rows = [
        {"file_name": "1.png", "label": 3, "text": "eins", "extra": 0.5},
        {"file_name": "./sub/../sub/2.png", "label": None, "text": None, "extra": None},
        {"file_name": "5.png", "label": 7, "text": " ", "extra": 1.0},
        {"file_name": "gone.png", "label": 1, "text": "gone", "extra": 1.0},
        {"file_name": "1.png", "label": 4, "text": "again", "extra": 1.0},
        {"file_name": "notes.pdf", "label": 1, "text": "no image", "extra": 1.0},
        {"file_name": None, "label": 1, "text": "no name", "extra": 1.0},
    ]
    (tmp_path / "notes.pdf").touch()
    write_table(tmp_path / f"metadata.{kind}", rows)
    # The convention: relative to the folder of the table.
    write_table(tmp_path / f"sub/metadata.{kind}", [{"file_name": "deep\\3.png", "label": "x", "text": "drei"}])
    found = source(tmp_path, label="metadata", caption="metadata", classes=["3", "x"])
    outcomes = read(found)
    said = {where: (one.label, one.caption) for where, one in outcomes.items() if isinstance(one, Raw)}
    assert said == {
        "1.png": ("3", "eins"),
        "sub/2.png": (None, None),
        "sub/deep/3.png": ("x", "drei"),
        "4.png": (None, None),
        "5.png": ("7", None),
    }
    first = 1 if kind == "parquet" else 2 if kind == "csv" else 1  # lines of a text, rows of parquet
    table = f"metadata.{kind} row "
    assert reasons(found) == {
        "1.png": [],
        f"{table}{first + 4}: 1.png": [Reason.KEY_TWICE],
        "4.png": [Reason.LABEL_MISSING, Reason.CAPTION_MISSING],
        "5.png": [Reason.LABEL_OUT_OF_RANGE, Reason.CAPTION_MISSING],
        f"{table}{first + 3}: gone.png": [Reason.MISSING],
        f"{table}{first + 6}": [Reason.MISSING],
        f"{table}{first + 5}: notes.pdf": [Reason.NOT_AN_IMAGE],
        "sub/2.png": [Reason.LABEL_MISSING, Reason.CAPTION_MISSING],
        "sub/deep/3.png": [],
    }
    assert found.size() == 9
    keys = [entry.key for entry in found.entries(0, None)]
    assert keys == sorted(keys) and keys.count("1") == 2
    assert found.metadata()["ignored"] == {".pdf": 1}


def test_a_table_is_read_for_what_is_asked_of_it_only(tmp_path: Path) -> None:
    image(tmp_path / "cat/1.png")
    write_table(tmp_path / "cat/metadata.csv", [{"file_name": "1.png", "prompt": "a cat"}])
    found = source(tmp_path, label="parent", caption="metadata", caption_column="prompt")
    assert [(one.label, one.caption) for one in read(found).values()] == [("cat", "a cat")]
    found = source(tmp_path, label="metadata", caption="metadata", label_column="prompt", caption_column="prompt")
    assert [(one.label, one.caption) for one in read(found).values()] == [("a cat", "a cat")]
    assert source(tmp_path).metadata()["ignored"] == {".csv": 1}


def test_numbers_become_texts(tmp_path: Path) -> None:
    values = {"int": 3, "whole": 4.0, "broken": 0.5, "true": True, "nan": float("nan"), "null": None, "text": "05"}
    rows = [{"file_name": f"{name}.png", "label": value} for name, value in values.items()]
    for name in values:
        image(tmp_path / f"{name}.png")
    write_table(tmp_path / "metadata.jsonl", rows)
    labels = {where: one.label for where, one in read(source(tmp_path, label="metadata")).items()}
    assert labels == {
        "int.png": "3",
        "whole.png": "4",
        "broken.png": "0.5",
        "true.png": "true",
        "nan.png": None,
        "null.png": None,
        "text.png": "05",
    }


def test_texts_of_tables_that_are_not_utf8(tmp_path: Path) -> None:
    for name in ("ä.png", "b.png", "c.png"):
        image(tmp_path / name)
    latin = '"größer"'.encode("cp1252")
    (tmp_path / "metadata.jsonl").write_bytes(
        b'{"file_name": "\xc3\xa4.png", "text": ' + latin + b', "label": ' + latin + b"}\n\n"
        b'{"file_name": "b.png", "text": "half an emoji \\ud83d", "label": "\\ud83d"}\n'
        b'{"file_name": "c.png", "text": "whole \\ud83d\\ude00", "label": "c"}'
    )
    found = source(tmp_path, caption="metadata", label="metadata")
    outcomes = read(found)
    assert outcomes["ä.png"].caption == "größer"
    assert outcomes["c.png"].caption == "whole 😀"
    assert reasons(found) == {
        "ä.png": [Reason.CAPTION_NOT_UTF8],
        "b.png": [Reason.CAPTION_NOT_UTF8],
        "c.png": [],
    }
    for one in outcomes.values():
        (one.label + one.caption).encode()


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("metadata.csv", b"file,text\n1.png,x\n", "metadata.csv has no column `file_name`, only `file`, `text`"),
        ("metadata.csv", b"file_name,Text\n1.png,x\n", "has no column `text`, only `Text`, `file_name`"),
        ("metadata.csv", b"", "has no column `file_name`, only none"),
        ("metadata.csv", b"file_name,text\n1.png,a cat, sitting\n", "line 2 has 3 fields, but the first line has 2"),
        ("metadata.jsonl", b'{"file_name": "1.png", "text": "x"}\n{"file_', "line 2 is not JSON"),
        ("metadata.jsonl", b"[1, 2]\n", "line 1 is not an object"),
        ("metadata.jsonl", b"[" * 100_000, "line 1 is not JSON"),
        ("metadata.jsonl", b'{"file_name": "1.png", "text": ["x", "y"]}\n', "row 1: `text` is list"),
        ("metadata.csv", b"file_name;text\n1.png;a cat; sitting\n", "3 fields.*put texts with a semicolon in"),
        ("metadata.csv", "file_name\tbild\n".encode("utf-16"), "no column `text`, only `bild`, `file_name`"),
        ("metadata.csv", "file_name,text".encode("utf-16")[:-1], "cannot be read: .*truncated"),
        ("metadata.parquet", b"PAR1 and nothing else", "metadata.parquet cannot be read"),
        (
            "metadata.jsonl",
            b'{"file_name": "../1.png", "text": "x"}\n',
            "row 1 names .* is not in the folder",
        ),
        ("metadata.jsonl", b'{"file_name": "a/../../1.png", "text": "x"}\n', "row 1 names .* is not in the folder"),
        ("metadata.jsonl", b'{"file_name": "..\\\\1.png", "text": "x"}\n', "row 1 names .* is not in the folder"),
        ("metadata.jsonl", b'{"file_name": "/etc/1.png", "text": "x"}\n', "row 1 names .* is not in the folder"),
    ],
)
def test_a_table_that_cannot_be_used_is_told(tmp_path: Path, name: str, content: bytes, told: str) -> None:
    image(tmp_path / "sub/1.png")
    (tmp_path / "sub" / name).write_bytes(content)
    with pytest.raises(DarkroomError, match=f"sub/.*{told}") as error:
        source(tmp_path, caption="metadata").size()
    str(error.value).encode()


@pytest.mark.parametrize(
    ("codec", "kind"),
    [
        *((codec, ",") for codec in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be")),
        *(("utf-8", kind) for kind in (";", "\t", "jsonl")),
    ],
)
def test_tables_are_read_as_spreadsheets_write_them(tmp_path: Path, codec: str, kind: str) -> None:
    image(tmp_path / "ä.png")
    said = {"file_name": "ä.png", "text": "größer; rot, 猫", "label": "x"}
    lines = [json.dumps(said), ""] if kind == "jsonl" else [kind.join(said), kind.join(f'"{v}"' for v in said.values())]
    name = "metadata.jsonl" if kind == "jsonl" else "metadata.csv"
    for end in ("\n", "\r\n", "\r"):
        (tmp_path / name).write_bytes(end.join(lines).encode(codec))
        (raw,) = read(source(tmp_path, label="metadata", caption="metadata")).values()
        assert isinstance(raw, Raw) and (raw.label, raw.caption, raw.findings) == ("x", said["text"], ()), end


def test_no_table_and_two_in_one_folder_are_told(tmp_path: Path) -> None:
    image(tmp_path / "1.png")
    with pytest.raises(DarkroomError, match=r"`folder.label` and `folder.caption` .*has no table"):
        source(tmp_path, label="metadata", caption="metadata").size()
    write_table(tmp_path / "metadata.csv", [{"file_name": "1.png", "text": "x"}])
    write_table(tmp_path / "metadata.jsonl", [{"file_name": "1.png", "text": "y"}])
    with pytest.raises(DarkroomError, match=r"metadata.csv and metadata.jsonl are in one folder"):
        source(tmp_path, caption="metadata").size()


def test_shown_is_always_valid() -> None:
    assert shown("größe") == "größe"
    assert shown("\udce4\ud83d").encode()


# What people's systems make of names


def test_every_format_that_is_opened_is_found(tmp_path: Path) -> None:
    endings = {ending for format in FORMATS.values() for ending in format.extensions}
    for ending in endings:
        image(tmp_path / f"{ending}.{ending}")
    assert listed(source(tmp_path)).keys() == {f"{ending}.{ending}" for ending in endings}


def test_letters_that_macos_writes_as_two_characters_are_the_same(tmp_path: Path) -> None:
    two = unicodedata.normalize("NFD", "é")
    assert two != "é"
    image(tmp_path / f"caf{two}" / f"{two}.png")
    image(tmp_path / "café" / "b.png")
    rows = [{"file_name": "café/é.png", "text": "one"}, {"file_name": "café/b.png", "text": "two"}]
    (tmp_path / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = read(source(tmp_path, label="parent", classes=[f"caf{two}"], caption="metadata"))
    assert {(raw.label, raw.caption, raw.findings) for raw in found.values() if isinstance(raw, Raw)} == {
        ("café", "one", ()),
        ("café", "two", ()),
    }
    assert len(found) == 2


def test_blanks_around_a_label_make_no_other_class(tmp_path: Path) -> None:
    image(tmp_path / "a.png")
    image(tmp_path / "b.png")
    (tmp_path / "metadata.csv").write_text("file_name,label\na.png, cat\nb.png,cat \n")
    found = read(source(tmp_path, label="metadata", classes=["cat"]))
    assert [raw.label for raw in found.values() if isinstance(raw, Raw)] == ["cat", "cat"]


@pytest.mark.parametrize("name", ["a.txt", "metadata.csv", "metadata.jsonl"])
def test_a_caption_of_a_megabyte_is_a_caption(tmp_path: Path, name: str) -> None:
    image(tmp_path / "a.png")
    text = "long " * 200_000 + "end"
    table = {"csv": f"file_name,text\na.png,{text}\n", "jsonl": json.dumps({"file_name": "a.png", "text": text})}
    (tmp_path / name).write_text(table.get(name.rpartition(".")[2], text))
    (raw,) = read(source(tmp_path, caption="txt" if name == "a.txt" else "metadata")).values()
    assert isinstance(raw, Raw) and (raw.caption, raw.findings) == (text, ())


def test_files_that_would_fill_the_memory_are_listed(tmp_path: Path) -> None:
    with (tmp_path / "film.png").open("wb") as file:
        file.truncate(2**30 + 1)  # takes no space
    image(tmp_path / "a.png")
    with (tmp_path / "a.txt").open("wb") as file:
        file.truncate(2**24 + 1)
    found = read(source(tmp_path, caption="txt"))
    assert [(error.reason, error.detail) for error in found.values() if isinstance(error, DamageError)] == [
        (Reason.BOMB, "a txt of 16,777,217 bytes"),
        (Reason.BOMB, "a png of 1,073,741,825 bytes"),
    ]
