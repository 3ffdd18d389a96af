"""Where a folder has its classes and captions."""

import csv
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from darkroom.data.sources.folder import Folder as Source
from darkroom.errors import DarkroomError
from darkroom.tools.init.columns import choose
from darkroom.tools.init.subject import folder_settings
from tools.init.conftest import classes

NUMBERS = range(40)


@pytest.mark.parametrize(
    ("paths", "label"),
    [
        (classes("cat", "dog"), "parent"),
        ([f"{name}/{path}" for name in ("train", "test") for path in classes("cat", "dog")], "parent"),
        ([f"{kind}/{number}/a.png" for kind in ("cat", "dog") for number in NUMBERS], "top"),
        (classes("cat"), "none"),  # one class is none
        (classes("train", "val", "test"), "none"),
        ([f"{number}.png" for number in NUMBERS], "none"),
        ([f"{2001 + number % 5}/{1 + number % 12:02}/{number}.png" for number in range(200)], "none"),
        ([f"{2001 + number % 5}-{1 + number % 12:02} at home/{number}.png" for number in range(600)], "none"),
        ([f"{year}/{path}" for year in (2020, 2021) for path in classes("cat", "dog")], "parent"),
        ([f"{2001 + number % 2}/{'January' if number % 3 else 'May'}/{number}.png" for number in range(60)], "none"),
        ([f"2019/{path}" for path in classes("marble", "decor", "sepia", "3d", "jan-party")], "parent"),
        ([f"2019/{path}" for path in classes("marble", "sept")] + classes("2020/05"), "parent"),
        ([f"{year}/{path}" for year in (2019, 2020) for path in classes("Sept", "05", "10 - Oct", "2019-1")], "none"),
        (
            [f"{year}/{year}-{month:02}-03/{n}.png" for year in (2019, 2020) for month in (3, 4) for n in NUMBERS],
            "none",
        ),
        (
            [
                f"{kind}/{2020 + year}/{year}-{number}.png"
                for kind in ("cat", "dog")
                for year in range(2)
                for number in range(9)
            ],
            "top",
        ),
        ([f"{number % 10}/{number}.png" for number in range(200)], "parent"),  # digits are no dates
        ([f"{number // 2}/{number}.png" for number in range(200)], "none"),  # too few images each
    ],
)
def test_classes_are_folders_that_hold_several_images_and_are_no_dates_or_splits(pictures, paths, label):
    settings, _ = folder_settings(pictures("pictures", paths, size=(2, 2)))
    assert settings.label == label and settings.caption == "none"


def test_it_is_said_why_folders_are_no_classes(pictures):
    dates = pictures("dates", [f"{2001 + number % 5}/{number}.png" for number in NUMBERS], size=(2, 2))
    many = pictures("many", [f"{number}/a.png" for number in NUMBERS], size=(2, 2))
    assert "are dates" in folder_settings(dates)[1][0]
    assert "40 folders for 40 images" in folder_settings(many)[1][0]
    loose = pictures("loose", [f"{number}.png" for number in range(20)], size=(2, 2))
    assert folder_settings(loose)[1] == ()
    pictures("loose", classes("cat", "dog", each=30), size=(2, 2))
    settings, (why,) = folder_settings(loose)
    assert settings.label == "none" and "60 of 80 images are in folders; for classes, at least 80% must" in why


def test_a_split_that_is_read_as_a_class_is_named(pictures):
    root = pictures("pictures", [f"train/{path}" for path in classes("cat", "dog")] + classes("test"), size=(2, 2))
    settings, notes = folder_settings(root)
    assert settings.label == "parent" and "So test is also read as a class" in notes[0]


@pytest.mark.parametrize("ending", [".txt", ".png.txt"])
def test_texts_beside_the_images_are_captions_where_most_have_one(pictures, ending):
    root = pictures("pictures", [f"{number}.png" for number in NUMBERS], size=(2, 2))
    assert folder_settings(root)[1] == ()
    for number in range(20):
        (root / f"{number}{ending}").write_text("a thing")
    settings, notes = folder_settings(root)
    assert settings.caption == "none" and "50% of the images have a text file next to them: too few" in notes[0]
    (root / f"20{ending}").write_text("a thing")
    settings, notes = folder_settings(root)
    assert settings.caption == "txt" and "Captions come from the text files" in notes[0]


def test_captions_of_both_endings_are_named(pictures):
    root = pictures("pictures", classes("10_cat"), size=(2, 2))
    for number in range(20):
        (root / "10_cat" / f"{number}.caption").write_text("a thing")
    (root / "10_cat" / "0.txt").write_text("a thing")
    assert folder_settings(root)[1] == (
        "Captions come from the text files next to the images, `.txt` or `.caption`; 1 `.caption` next to a `.txt` are "
        "not read.",
    )


def rows():
    """A table whose column `class` holds a name for each image, and `category` classes."""
    return [
        {
            "file_name": f"{number}.png",
            "id": str(number),
            "class": f"c{number}",
            "category": "cat" if number % 2 else "dog",
            "title": f"Title of {number}",
            "caption": f"an animal, the number {number}",
            "license": "CC0" if number % 3 else "public domain",
        }
        for number in NUMBERS
    ]


def write_csv(path, table):
    with path.open("w", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, table[0])
        writer.writeheader()
        writer.writerows(table)


WRITERS = {
    "csv": write_csv,
    "jsonl": lambda path, table: path.write_text("".join(json.dumps(row) + "\n" for row in table)),
    "parquet": lambda path, table: pq.write_table(pa.Table.from_pylist(table), path),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_columns_are_chosen_by_their_names_and_by_what_they_hold(pictures, kind):
    root = pictures("pictures", [f"{number}.png" for number in NUMBERS], size=(2, 2))
    WRITERS[kind](root / f"metadata.{kind}", rows())
    settings, notes = folder_settings(root)
    assert (settings.label, settings.label_column) == ("metadata", "category")
    assert (settings.caption, settings.caption_column) == ("metadata", "caption")
    assert any("`category`" in note for note in notes)
    source = Source(settings, root)
    first = source.read(next(iter(source.entries(0, None))))
    assert (first.label, first.caption) == ("dog", "an animal, the number 0")


def test_a_column_of_conversations_holds_captions(pictures):
    root = pictures("pictures", [f"{number}.png" for number in NUMBERS], size=(2, 2))
    turns = [[{"from": "human", "value": "what?"}, {"from": "gpt", "value": f"a thing {number}"}] for number in NUMBERS]
    table = [{"file_name": f"{number}.png", "conversations": turns[number]} for number in NUMBERS]
    WRITERS["jsonl"](root / "metadata.jsonl", table)
    settings, notes = folder_settings(root)
    assert settings.caption_column == "conversations" and "Captions come from the column `conversations`" in notes[0]


@pytest.mark.parametrize(
    ("column", "values", "label", "column_chosen"),
    [
        ("colour", ("red", "blue"), "parent", "label"),
        ("species", ("wolf", "fox"), "metadata", "species"),
    ],
)
def test_where_folders_are_classes_only_a_column_of_a_known_name_is_better(
    pictures, column, values, label, column_chosen
):
    paths = classes("cat", "dog")
    root = pictures("pictures", paths, size=(2, 2))
    write_csv(
        root / "metadata.csv", [{"file_name": path, column: values[number % 2]} for number, path in enumerate(paths)]
    )
    settings, _ = folder_settings(root)
    assert (settings.label, settings.label_column) == (label, column_chosen)


def test_a_column_of_lists_is_passed_over(pictures):
    root = pictures("pictures", [f"{number}.png" for number in NUMBERS], size=(2, 2))
    WRITERS["jsonl"](root / "metadata.jsonl", [{**row, "label": [1, 2]} for row in rows()])
    assert folder_settings(root)[0].label_column == "category"


@pytest.mark.parametrize("kind", WRITERS)
def test_a_table_without_names_of_files_is_passed_over_where_none_is_needed(pictures, kind):
    root = pictures("pictures", classes("cat", "dog"), size=(2, 2))
    WRITERS[kind](root / f"metadata.{kind}", [{"id": "1", "foo": "x"}])
    (root / "cat" / "metadata.csv").touch()
    WRITERS["jsonl"](root / "dog" / "metadata.jsonl", [{"file_name": "0.png", "foo": "x"}])
    settings, notes = folder_settings(root)
    assert settings.label == "parent"
    assert notes[0].startswith(f"Not read: `cat/metadata.csv`, `metadata.{kind}`, without a column `file_name`")
    assert Source(settings, root).size() == 40  # nor does `ingest` stop
    WRITERS["jsonl"](root / "dog" / "metadata.jsonl", [{"file_name": "0.png", "text": "x y"}, {"text": "y"}])
    with pytest.raises(DarkroomError, match=r"`cat/metadata\.csv` has no column `file_name`, unlike the others"):
        folder_settings(root)


def test_a_column_of_a_known_name_that_is_not_used_is_named():
    table = {
        "label": [f"c{number // 4}" for number in NUMBERS],
        "Breed": ["cat"] * 40,
        "style": ["", None] * 20,
        "class": ["x" * 50, "y" * 50] * 20,
        "text": ["the same"] * 40,
        "caption": [*["a cat", "a dog"], *[""] * 38],
        "note": ["a", "a"] * 20,
    }
    found = choose(table, "the table")
    assert (found.label, found.caption) == (None, None)
    assert [note.removeprefix("The column ").replace(" of the table has no", "") for note in found.notes] == [
        "`label` classes: it has 10 values for 40 images, but each class needs 5.",
        "`class` classes: its values are too long.",
        "`Breed` classes: its values are all the same.",
        "`style` classes: most values are empty.",
        "`text` captions: its values are all the same.",
        "`caption` captions: most values are empty.",
    ]


def test_files_that_look_like_tables_and_are_not_read_are_named(pictures):
    root = pictures("pictures", classes("cat", "dog"), size=(2, 2))
    write_csv(root / "metadata.csv", [{"file_name": "cat/0.png", "id": "1"}])
    for name in ("captions.csv", "labels.JSON", ".hidden.csv", "notes.md", "cat/deep.csv"):
        (root / name).touch()
    assert "Not read: `captions.csv`, `labels.JSON`. A table is named metadata.jsonl" in folder_settings(root)[1][-1]
    for number in NUMBERS:
        (root / f"{number}.jsonl").touch()
    assert "`12.jsonl` and 37 more. A table" in folder_settings(root)[1][-1]


def test_a_table_that_cannot_be_read_is_named(pictures):
    root = pictures("pictures", ["a.png"])
    (root / "metadata.jsonl").write_text("{")
    with pytest.raises(DarkroomError, match=r"metadata\.jsonl cannot be read: line 1"):
        folder_settings(root)
