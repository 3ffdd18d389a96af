"""What is in a source: of folders of every kind, of tars, of sources with a name."""

import io
import re
import tarfile

import pytest
from PIL import Image

from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.stage import read_yaml
from darkroom.tools.cores import Machine
from darkroom.tools.init import facts
from darkroom.tools.init.facts import look
from darkroom.tools.init.proposal import TIERS, TRAININGS, InitOptions, propose
from darkroom.tools.init.subject import entry, opened
from data.frames import unit_image, write_frames
from data.making_tars import tar
from tools.init.conftest import classes


@pytest.mark.parametrize(("mode", "grey"), [("RGB", 0), ("L", 1), ("RGBA", 0), ("P", 0), ("I;16", 1)])
def test_colours_of_every_mode(clone, pictures, mode, grey):
    root = pictures("pictures", classes("cat", "dog"), mode="L" if mode == "I;16" else mode)
    if mode == "I;16":
        for path in root.rglob("*.png"):
            Image.open(path).convert("I;16").save(path)
    found = look(opened(str(root)))
    assert (found.grey, found.transparent) == (grey, mode == "RGBA")
    assert found.channels == ("L" if grey else mode.replace("P", "RGB"))
    assert found.classes == {"cat": 20, "dog": 20}


def test_sizes_copies_and_what_cannot_be_read(clone, pictures):
    root = pictures("pictures", [f"{number}.png" for number in range(30)], size=(64, 32))
    pictures("pictures", [f"tall{number}.png" for number in range(20)], size=(48, 96))
    (root / "0.png").write_bytes((root / "1.png").read_bytes())
    (root / "2.png").write_bytes(b"no image")
    found = look(opened(str(root)))
    assert found.side == (32, 32, 48)
    assert (found.total, found.looked, found.left_out) == (50, 50, 1)
    assert found.images == 48  # that can be read, and differ
    assert not found.classes and not found.has_captions


def test_what_ingest_leaves_out_is_counted(clone, pictures):
    root = pictures("pictures", [f"{number}.png" for number in range(50)])
    Image.new("RGBA", (32, 32), (255, 0, 0, 0)).save(root / "0.png")
    Image.new("RGB", (1, 1)).save(root / "1.png")
    Image.open(root / "2.png").convert("RGB").save(root / "2.jpg")  # of the same key
    found = look(opened(str(root)))
    assert (found.total, found.looked, found.left_out, found.images) == (51, 51, 3, 48)


def test_of_a_small_sample_more_may_be_left_out_than_it_shows(clone, pictures, monkeypatch):
    root = pictures("pictures", [f"{number}.png" for number in range(400)])
    for number in range(0, 400, 20):
        (root / f"{number}.png").write_bytes(b"no image")
    assert look(opened(str(root))).most_left_out == 0.05
    monkeypatch.setattr(facts, "LOOKED", 60)
    found = look(opened(str(root)))
    assert 0 < found.left_out / 60 < 0.1 and found.most_left_out > 0.05


@pytest.mark.parametrize(("copies", "different"), [("of four each", 100), ("of one", 301), ("none", 400)])
def test_how_many_images_differ_is_known_by_a_sample(clone, pictures, monkeypatch, copies, different):
    root = pictures("pictures", [f"{number}.png" for number in range(400)])
    for number in range(400):
        first = {"of four each": number % 100, "of one": 0 if number < 100 else number, "none": number}[copies]
        (root / f"{number}.png").write_bytes((root / f"{first}.png").read_bytes())
    monkeypatch.setattr(facts, "LOOKED", 150)
    found = look(opened(str(root)))
    assert (found.total, found.looked) == (400, 150)
    assert found.images == pytest.approx(different, rel=0.15 if different < 400 else 0)


def test_captions_and_their_length(clone, pictures):
    root = pictures("pictures", [f"{number}.png" for number in range(40)])
    for number in range(40):
        (root / f"{number}.txt").write_text(f"the number {number}")
    found = look(opened(str(root)))
    assert found.has_captions and found.captioned == 1
    assert found.tokens is not None and 4 < found.tokens < 9
    for number in range(40):
        (root / f"{number}.txt").write_text("always the same")
    assert not look(opened(str(root))).has_captions


@pytest.mark.parametrize("looked", [400, 20])
def test_captions_must_say_more_than_classes_where_there_are_any(clone, pictures, monkeypatch, looked):
    """However few of the images are looked at: of few, most captions are seen once."""
    root = pictures("pictures", classes("cat", "dog", each=200))
    for number, path in enumerate(sorted(root.rglob("*.png"))):
        path.with_suffix(".txt").write_text(f"a {path.parent.name} of kind {number % 4}")
    monkeypatch.setattr(facts, "LOOKED", looked)
    found = look(opened(str(root)))
    assert found.looked == looked and found.captions == pytest.approx(8 / 400, abs=0.02)
    assert found.may_have_texts and not found.has_captions
    (root / "dog").rename(root / "cat" / "dog")  # no classes any more
    assert look(opened(str(root / "cat"))).has_captions


def test_of_many_images_some_are_looked_at_of_every_class(clone, pictures, monkeypatch):
    root = pictures("pictures", classes("a", "b", "c", "d", each=25))
    monkeypatch.setattr(facts, "LOOKED", 40)
    found = look(opened(str(root)))
    assert (found.images, found.looked) == (100, 40)
    assert set(found.classes) == {"a", "b", "c", "d"}


def test_looking_ends_in_time_and_sees_every_class_all_the_same(clone, pictures, monkeypatch):
    root = pictures("pictures", classes("a", "b", "c", "d", each=25))
    monkeypatch.setattr(facts, "_SECONDS", 0.0)
    monkeypatch.setattr(facts, "_ENOUGH", 20)
    found = look(opened(str(root)))
    assert found.looked == 20 and set(found.classes) == {"a", "b", "c", "d"}


@pytest.mark.parametrize(("name", "images", "kinds"), [("digits", 1797, 10), ("shapes", 8000, 48)])
def test_sources_with_a_name(clone, monkeypatch, name, images, kinds):
    monkeypatch.setattr(facts, "LOOKED", 300)
    found = look(opened(name))
    assert found.images == images and len(found.classes) == kinds
    assert found.captioned == 1 and found.has_captions == (name == "shapes")


def write_tar(path, pictures, numbers, members):
    with tarfile.open(path, "w") as tar:
        for number in numbers:
            image = (pictures / f"{number}.png").read_bytes()
            for ending, data in {"png": image, **members(number)}.items():
                info = tarfile.TarInfo(f"{number:05}.{ending}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))


@pytest.mark.parametrize(
    ("members", "settings"),
    [
        (lambda number: {"cls": b"%d" % (number % 2), "txt": b"a number"}, {}),
        (lambda number: {"txt": b"a number"}, {"label": None}),
        (lambda number: {}, {"label": None, "caption": None}),
    ],
)
def test_tars(clone, pictures, tmp_path, members, settings):
    images = pictures("images", [f"{number}.png" for number in range(60)])
    folder = tmp_path / "tars"
    folder.mkdir()
    for shard in range(2):
        write_tar(folder / f"{shard}.tar", images, range(shard * 30, shard * 30 + 30), members)
    subject = opened(str(folder))
    assert subject.part.source == "webdataset"
    defaults = {"label": "cls", "caption": "txt"}
    assert subject.part.settings == {**defaults, **settings}
    found = look(subject)
    assert (found.images, found.left_out) == (60, 0)
    assert len(found.classes) == (0 if settings.get("label", "cls") is None else 2)
    assert entry(subject, 60)["path"] == str(folder)
    PARAMS.write_text(PARAMS.read_text().replace("webdataset: {}", "webdataset:\n  label: json:label"))
    assert opened(str(folder), {}).part.settings == {**defaults, **settings, "label": "json:label"}


def test_a_tar_with_links_that_lead_nowhere_is_read(clone, pictures, tmp_path):
    images = pictures("images", [f"{number}.png" for number in range(60)])
    members = [(f"{number}.png", (images / f"{number}.png").read_bytes()) for number in range(60)]
    path = tar(tmp_path / "a.tar", [("x.png", "gone.png"), *members, ("61.png", "0.png")])
    facts = look(opened(str(path)))
    assert (facts.total, facts.images, facts.left_out) == (62, 60, 1)


def test_an_archive_beside_the_images_that_came_of_it_is_no_shard(clone, pictures):
    root = pictures("pictures", classes("cat", "dog"))
    write_tar(root / "pictures.tar", root / "cat", range(20), lambda number: {})
    assert opened(str(root)).part.source == "folder"


def test_a_folder_in_the_hubs_layout_has_as_many_rows_as_are_read(clone, pictures):
    pytest.importorskip("datasets")
    root = pictures("set", classes("train/cat", "train/dog", each=25))
    subject = opened(f"hub:{root}")
    found = look(subject)
    assert found.images == 50 and found.classes == {"cat": 25, "dog": 25}
    assert entry(subject, found.images)["stop"] == 50


@pytest.mark.parametrize(
    ("columns", "settings", "said"),
    [
        ({"fine": "class", "coarse": "class"}, {"label": "fine"}, "`fine` of .*, of fine, coarse: `hub.label`"),
        ({"label": "class", "caption": "text"}, {"caption": "caption"}, "Captions come from the column `caption`"),
        ({"text": "texts"}, {"label": None, "caption": "text"}, "Captions come from the column `text`"),
        ({"conversations": "turns"}, {"label": None, "caption": "conversations"}, "from the column `conversations`"),
    ],
)  # fmt: skip
def test_columns_of_the_hub_are_found(clone, pictures, tmp_path, columns, settings, said):
    datasets = pytest.importorskip("datasets")
    root = pictures("images", [f"{number}.png" for number in range(60)])
    kinds = {"class": datasets.ClassLabel(names=["cat", "dog"]), "text": datasets.Value("string")}
    kinds["texts"] = datasets.List(kinds["text"])
    kinds["turns"] = datasets.List({"from": kinds["text"], "value": kinds["text"]})
    values = {
        "class": lambda row: row % 2,
        "text": lambda row: f"text {row}",
        "texts": lambda row: [f"text {row}", "b"],
        "turns": lambda row: [{"from": "gpt", "value": f"text {row}"}],
    }
    features = {"img": datasets.Image(), **{name: kinds[kind] for name, kind in columns.items()}}
    rows = [
        {
            "img": {"bytes": (root / f"{row}.png").read_bytes(), "path": None},
            **{name: values[kind](row) for name, kind in columns.items()},
        }
        for row in range(60)
    ]
    (tmp_path / "set").mkdir()
    made = datasets.Dataset.from_list(rows, features=datasets.Features(features))
    made.to_parquet(tmp_path / "set" / "train.parquet")
    subject = opened(f"hub:{tmp_path / 'set'}")
    assert subject.part.settings == {"image": "img", **settings} and re.search(said, " ".join(subject.notes))
    found = look(subject)
    assert len(found.classes) == 2 * ("class" in columns.values()) and found.captioned == ("caption" in settings)
    PARAMS.write_text(PARAMS.read_text().replace("hub: {}", "hub:\n  label:\n  caption:"))
    subject = opened(f"hub:{tmp_path / 'set'}", {})
    assert subject.part.settings == {"image": "img", "label": None, "caption": None} and not subject.notes


def test_what_params_say_of_a_source_is_written_into_the_part(clone):
    """The settings are written over what params.yaml was before the first `darkroom init`."""
    begun = read_yaml(PARAMS)
    PARAMS.write_text(PARAMS.read_text().replace("digits: {}", "digits:\n  caption: 'a {label}'"))
    assert opened("digits", begun).part.settings == {"caption": "a {label}"}
    assert opened("digits").part.settings == {}


def test_too_few_images_are_refused(clone, pictures):
    root = pictures("pictures", [f"{number}.png" for number in range(3)])
    with pytest.raises(DarkroomError, match="3 images are too few"):
        look(opened(str(root)))


def test_where_none_can_be_read_the_reasons_are_said(clone, pictures):
    root = pictures("pictures", [f"{number}.png" for number in range(60)])
    for path in root.iterdir():
        path.write_bytes(b"")
    with pytest.raises(DarkroomError, match=r"none of 60 .* \(empty 60\)"):
        look(opened(str(root)))


def test_the_split_follows_names_looks_or_neither(clone, monkeypatch):
    write_frames(clone / "frames")
    frames = look(opened("frames"))
    setting, why = frames.group
    assert setting == "name" and "the first word of the file name, and near copies: 48 groups in 352 images" in why
    assert 30 < int(re.findall(r"without groups, (\d+)% of those held out", why)[0]) <= 100
    for root, frame in (("bursts", lambda number: (number // 4, number % 4)), ("others", lambda number: (number, 0))):
        (clone / root).mkdir()
        for number in range(160):
            unit_image(*frame(number)).save(clone / root / f"IMG_{number:04d}.png")
    alike, why_alike = look(opened("bursts")).group
    assert alike == "similar" and "40 groups in 160 images" in why_alike
    assert look(opened("others")).group == ("key", "neither names nor looks show groups")
    monkeypatch.setattr(facts, "LOOKED", 300)
    assert look(opened("frames")).group[0] == "auto"  # the rule was found on some of the names
    wish = InitOptions("frames", {"source": "folder", "path": "frames"}, text=False)
    choices = propose(frames, wish, TIERS[0], Machine(2), dict.fromkeys(TRAININGS, 6400))
    assert choices["ingest.group"] == (setting, why) == frames.group and choices["ingest.split_seed"].value == 0
