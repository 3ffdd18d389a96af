"""Folders in the mess that people have, through the stage `ingest`: what goes in is stored, or listed with a reason."""

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from darkroom.artifacts.manifest import read_manifest
from darkroom.check.check import read_params
from darkroom.cli import main
from darkroom.data.catalog_writer import catalog_facts
from darkroom.data.damage import Reason, read_quarantine, require_few
from darkroom.data.keys import is_utf8, key_of, shown
from darkroom.data.reader import ImageShards
from darkroom.data.splits import SPLITS
from darkroom.errors import DarkroomError
from darkroom.params.ingest import CatalogParams, Params, Rules
from darkroom.params.stage import read_yaml
from darkroom.stages import catalog as catalog_stage
from darkroom.stages import ingest
from data.making import contents, make_part
from data.mess import ALL, GOOD, SETTINGS, SMALLEST, Mess, make_mess, png
from helpers import DIGITS
from tools.verify.making import configure

VALUES = read_params(DIGITS)
CHOSEN = [Reason(name) for name in Rules.model_fields]  # reasons whose action `ingest.rules` chooses
STRICT = dict.fromkeys((reason.value for reason in CHOSEN), "quarantine")
ACTIONS = {reason: get_args(Rules.model_fields[reason].annotation) for reason in CHOSEN}  # what params.yaml may say
SHARDS = Path("data/shards/mess")


def take(folder: Path, processes: int = 1, most: float = 0.05, rules: Mapping[str, str] = STRICT, **part: Any) -> None:
    """Run `ingest` in the working folder, and refuse too much damage as `catalog` does."""
    values = {key: VALUES[key] for key in ("run", "folder", "ingest")}
    values["run"] = {**values["run"], "ingest_processes": processes}
    values["ingest"] = {
        **values["ingest"],
        "image_size": 16,
        "shard_size": 120,
        "min_size": SMALLEST,
        "rules": dict(rules),
    }
    values["parts"] = {"mess": {"source": "folder", "path": str(folder), "settings": SETTINGS, **part}}
    ingest.run(Params.model_validate(values), "mess")
    require_few(["mess"], most, SHARDS.parent)


def stored() -> dict[str, tuple[str | None, str | None]]:
    """Read every image of all splits; return label and caption of each key."""
    found: dict[str, tuple[str | None, str | None]] = {}
    for split in SPLITS:
        shards = ImageShards.open_parts(["mess"], split)
        assert all(shards[row].shape == (3, 16, 16) for row in range(len(shards)))
        found.update(zip(shards.keys, zip(shards.labels, shards.captions, strict=True), strict=True))
        assert len(shards.keys) == read_manifest(SHARDS, "shards")["splits"][split]["images"]
    return found


def listed() -> list[tuple[str, str, str, str]]:
    """Return (key, reason, source, action) of each row of the list."""
    rows = read_quarantine(SHARDS, read_manifest(SHARDS, "shards")).to_pylist()
    return sorted((row["key"], row["reason"], row["source"], row["action"]) for row in rows)


# A folder of 411 images, of which 31 are damaged, each in another way.


@pytest.fixture(scope="module")
def mess(tmp_path_factory: pytest.TempPathFactory) -> Mess:
    return make_mess(tmp_path_factory.mktemp("people") / "my images", good=380, bad=len(ALL))


@pytest.fixture(scope="module")
def working(mess: Mess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working folder in which the mess was ingested by one process."""
    folder = tmp_path_factory.mktemp("working")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        take(mess.root, most=0.1)
        yield folder


def test_most_are_stored_and_the_damaged_are_listed_each_with_its_reason(mess: Mess, working: Path) -> None:
    assert len({reason for _, reason, _ in mess.wrong}) >= 15
    assert listed() == sorted((*each, "quarantine") for each in mess.wrong)
    found = stored()
    assert found == mess.stored
    assert len(found) == 380 and len(listed()) == 31


def test_the_manifest_counts_the_same(mess: Mess, working: Path) -> None:
    manifest = read_manifest(SHARDS, "shards")
    reasons = dict(sorted(Counter(reason for _, reason, _ in mess.wrong).items()))
    metadata = manifest["quarantine"]
    assert (metadata["rows"], metadata["quarantine"], metadata["repair"], metadata["keep"]) == (31, reasons, {}, {})
    labels: Counter[str] = Counter()
    for split in SPLITS:
        labels.update(manifest["splits"][split]["labels"])
        assert manifest["splits"][split]["unlabelled"] == 0
    assert labels == Counter(label for label, _ in mess.stored.values())
    source = manifest["source"]
    assert source["stop"] - source["start"] == 411
    assert source["ignored"] == {".pdf": sum(place.endswith(".pdf") for *_, place in mess.wrong)}
    assert str(mess.root.parent) not in json.dumps(manifest)


# Fewer images, damaged in every way once.


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Mess:
    return make_mess(tmp_path_factory.mktemp("few") / "people", good=2 * len(ALL), bad=len(ALL))


def test_slices_of_a_folder_are_the_whole(small: Mess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    keys: dict[str, Any] = {}
    sources: list[str] = []
    for start, stop in ((0, 25), (25, 50), (50, None)):
        take(small.root, most=0.9, start=start, stop=stop)
        keys |= stored()
        sources += [row[2] for row in listed()]
    # Only a duplicate could be in another slice than what it repeats, and is then found by `catalog`.
    apart = {place for _, _, place in small.wrong} - set(sources)
    assert {place.split("/")[0] for place in apart} <= {"zz"}
    assert len(keys) == len(small.stored) + len(apart) and small.stored.items() <= keys.items()
    assert len(sources) == len(small.wrong) - len(apart)


def test_too_many_fail_the_catalog_and_another_fraction_reads_nothing_again(
    small: Mess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    bad, all_ = len(small.wrong), len(small.wrong) + len(small.stored)
    copies = sum(reason == Reason.DUPLICATE for _, reason, _ in small.wrong)  # no damage
    share = (bad - copies) / (all_ - copies)
    take(small.root, most=share + 0.001)
    before = {path: path.stat().st_mtime_ns for path in SHARDS.rglob("*")}

    def catalog(most: float) -> None:
        values = {key: VALUES[key] for key in ("run", "catalog")}
        values["catalog"] = {**values["catalog"], "max_quarantined": most}
        values["parts"] = {"mess": {"source": "folder", "path": str(small.root)}}
        catalog_stage.run(CatalogParams.model_validate({**values, "train_tokenizer": {"parts": None}}))

    with pytest.raises(DarkroomError, match=rf"part `mess`: {bad} of {all_} samples cannot be used \(.*empty 1"):
        catalog(share - 0.001)
    assert not Path("data/catalog").exists() and not Path("data/selection").exists()  # which all trainings read
    configure("mess")
    assert main(["data", "mess", "--quarantine"]) == 0 and "empty" in capsys.readouterr().out
    catalog(share + 0.001)
    assert Path("data/catalog").is_dir()
    assert {path: path.stat().st_mtime_ns for path in SHARDS.rglob("*")} == before


def test_no_change_of_the_fraction_is_a_parameter_of_ingest() -> None:
    stages = read_yaml(Path(__file__).parents[2] / "dvc.yaml")["stages"]
    assert "max_quarantined" in VALUES["catalog"] and "max_quarantined" not in VALUES["ingest"]
    assert "catalog" in stages["catalog"]["params"] and "catalog" not in stages["ingest"]["do"]["params"]


def test_the_list_of_a_part_of_which_nothing_is_left_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    configure("mess", "other")
    mess = Mess(tmp_path / "people")
    for number, way in enumerate(("empty", "html", "truncated_png", "empty", "empty", "empty")):
        mess.bad(way, number)
    mess.close()
    with pytest.raises(DarkroomError, match=r"none of its 6 samples .*\(empty 4, .*data mess --quarantine"):
        take(mess.root)
    assert not SHARDS.exists()
    assert main(["data", "mess"]) == 0
    said = capsys.readouterr().out
    assert "no part was written for mess" in said and said.count("/empty-0000") == 3  # the first of each reason
    assert main(["data", "mess", "--quarantine"]) == 0
    said = capsys.readouterr().out
    assert said.count("/empty-0000") == 4 and "not_an_image" in said and "truncated" in said
    make_part(SHARDS.parent, "other", 0, 20)
    assert main(["data"]) == 0
    said = capsys.readouterr().out
    assert "no part was written for mess" in said and "other" in said
    mess.good(1)
    mess.close()
    take(mess.root, most=0.99)
    assert main(["data", "mess"]) == 0
    assert "no part was written" not in capsys.readouterr().out and not Path("logs/ingest-mess").exists()


# Rules


def by_rule(folder: Path, way: str, reason: Reason, action: str) -> tuple[Mess, dict, list]:
    mess = Mess(folder / "people")
    for number in range(3):
        mess.good(number)
    mess.bad(way, 77)
    mess.close()
    take(mess.root, most=0.5, rules={**STRICT, reason.value: action})
    return mess, stored(), listed()


@pytest.mark.parametrize(
    ("way", "reason", "action", "said"),
    [
        ("duplicate", Reason.DUPLICATE, "keep", ("red", "a text")),
        ("transparent", Reason.TRANSPARENT, "keep", ("red", "a text")),
        ("one_colour", Reason.ONE_COLOUR, "keep", ("red", "a text")),
        ("no_caption", Reason.CAPTION_MISSING, "keep", ("red", None)),
        ("empty_caption", Reason.CAPTION_MISSING, "keep", ("red", None)),
        ("latin_caption", Reason.CAPTION_NOT_UTF8, "repair", ("red", "größer")),
        ("no_label", Reason.LABEL_MISSING, "keep", (None, "a text")),
        ("other_label", Reason.LABEL_OUT_OF_RANGE, "keep", ("violet", "a text")),
    ],
)
def test_rules_keep_and_repair(
    way: str, reason: Reason, action: str, said: tuple, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    mess, kept, rows = by_rule(tmp_path, way, reason, action)
    ((key, _, source),) = mess.wrong
    assert rows == [(key, reason.value, source, action)]
    assert kept == {**mess.stored, key: said}
    mess, kept, rows = by_rule(tmp_path, way, reason, "quarantine")
    assert rows == [(key, reason.value, source, "quarantine")]
    assert kept == mess.stored


def details() -> dict[str, str]:
    rows = read_quarantine(SHARDS, read_manifest(SHARDS, "shards")).to_pylist()
    return {row["source"]: row["detail"] for row in rows}


def test_two_pictures_of_one_key_name_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mess = Mess(tmp_path / "people")
    for number, name in enumerate(("a b.jpg", "a b.png", "a b.webp", "c.png")):
        mess.add(name, GOOD[number % 2][1](number))
    mess.close()
    take(mess.root, most=0.9, rules=STRICT)
    found = details()
    assert found["a b.png"] == "the key of a b.jpg" and found["a b.webp"] == "the key of a b.jpg"
    assert [row for row in listed() if row[1] == Reason.KEY_TWICE] == [
        (key_of("a b"), "key_twice", name, "quarantine") for name in ("a b.png", "a b.webp")
    ]


def test_another_caption_of_a_duplicate_is_in_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mess = Mess(tmp_path / "people")
    captions = {"a": b"a red cat", "b": b"a red cat", "c": b"another caption", "d": "ö".encode() * 1000, "e": None}
    for name, caption in captions.items():
        mess.add(f"{name}.png", png(1), caption=caption)
    mess.add("other.png", png(2))
    mess.close()
    take(mess.root, rules={**STRICT, "caption_missing": "keep"})
    rows = read_quarantine(SHARDS, read_manifest(SHARDS, "shards")).to_pylist()
    found = {row["source"]: row["detail"] for row in rows if row["reason"] == Reason.DUPLICATE}
    assert found.keys() == {"b.png", "c.png", "d.png", "e.png"}
    assert found["b.png"] == found["e.png"] == "of a"
    assert found["c.png"] == "of a, whose caption is another than 'another caption'"
    assert len(found["d.png"]) < 400


def test_the_log_and_the_catalog_count_what_was_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    mess = Mess(tmp_path / "people")
    for number in range(20):
        mess.good(number)
    mess.close()
    take(mess.root)
    assert "passed over" not in capsys.readouterr().out and "passed_over" not in catalog_facts(["mess"])["parts"][0]
    mess.add("@eaDir/x.jpg", png(1), label=None, caption=None)
    (mess.root / "red/up").symlink_to(mess.root)
    take(mess.root)
    said = capsys.readouterr().out
    assert "passed over, hidden, or in folders of the system: @eaDir 1; with an image's ending 1" in said
    assert "passed over, links to a folder that contains them: 1" in said
    assert catalog_facts(["mess"])["parts"][0]["passed_over"].keys() == {"aside", "aside_images", "loops"}


# Any mess

names = st.text(
    st.characters(exclude_characters="\0/\r\n", exclude_categories=["Cs"]) | st.sampled_from(" .-#%ä☃\udce4"),
    min_size=1,
    max_size=30,
).filter(lambda name: not name.startswith(".") and len(name.encode("utf-8", "surrogateescape")) < 120)


@settings(max_examples=25)
@given(
    files=st.dictionaries(names, st.sampled_from(GOOD), max_size=12),
    ways=st.lists(st.sampled_from(ALL), max_size=12),
    rules=st.fixed_dictionaries({reason.value: st.sampled_from(asked) for reason, asked in ACTIONS.items()}),
)
def test_what_goes_in_comes_out_or_is_listed(
    files: dict[str, tuple[str, Callable[[int], bytes]]], ways: list[str], rules: dict[str, str]
) -> None:
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        mess = Mess(Path(place) / "people")
        mess.good(0)  # a part without an image is refused
        for number, way in enumerate(ways):
            mess.bad(way, number)
        for number, (name, (ending, make)) in enumerate(files.items()):
            mess.add(f"{name}.{ending}", make(1000 + number))
            if is_utf8(name):
                mess.stored[key_of(name)] = "red", "a text"
            else:
                mess.wrong.append((key_of(name), Reason.NAME_NOT_UTF8.value, shown(f"{name}.{ending}")))
        mess.close()
        take(mess.root, most=0.99, rules=rules)
        kept, rows = stored(), listed()
        assert rows == sorted((*each, rules.get(each[1], "quarantine")) for each in mess.wrong)
        used = {key for key, _, _, action in rows if action != "quarantine"}
        assert kept.keys() == mess.stored.keys() | used
        assert mess.stored.items() <= kept.items()
        # By number too: nothing twice, nothing gone.
        left_out = sum(action == "quarantine" for *_, action in rows)
        assert len(kept) + left_out == read_manifest(SHARDS, "shards")["source"]["stop"]


def test_the_same_images_elsewhere_give_the_same_part(
    small: Mess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(small.root, tmp_path / "there/is/a copy", symlinks=True)
    parts = []
    for place in (small.root, tmp_path / "there/is/a copy"):
        (tmp_path / "work" / place.name).mkdir(parents=True)
        monkeypatch.chdir(tmp_path / "work" / place.name)
        take(place, most=0.9)
        parts.append(contents(SHARDS))
    assert parts[0] == parts[1]


def test_a_changed_caption_changes_the_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mess = Mess(tmp_path / "people")
    path = mess.good(0)
    mess.add("other.png", png(1))
    mess.close()
    take(mess.root)
    (mess.root / path).with_suffix(".txt").write_text("now another text")
    take(mess.root)
    assert sorted(caption for _, caption in stored().values() if caption) == ["a text", "now another text"]
