"""Darkroom and DVC read one YAML, and what is wrong in it is named with its line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dvc.utils.serialize import ParseError, load_yaml
from hypothesis import example, given
from hypothesis import strategies as st

from darkroom.errors import DarkroomError
from darkroom.params.stage import read_yaml
from darkroom.params.yaml_text import conflict, parse_yaml

SCALARS = (
    "050 0o50 0777 08 0b11 0x1F 0X1F 1_000 +1 -0 1e3 1e-3 1E+3 1.5e3 .5 5. -.5 1_0.0 .inf -.INF .nan 1.2.3 1__0 "
    "yes No on Off y n true True TRUE tRue ~ null Null 12:30:45 190:20:30 2024-01-31 '050' \"yes\""
)
TAGGED = ["!!str 050", "!!float 1", "!!set {a}"]
DOCUMENTS = [
    "a: &base {x: 1, y: 2}\nb:\n  <<: *base\n  y: 3\n",
    "a: &one {x: 1}\nb: &two {x: 2, z: 3}\nc:\n  <<: [*one, *two]\n",
    "a: &list [1, 050]\nb: *list\n",
    "%YAML 1.1\n---\na: 050\nb: yes\n",
    "a: |\n  050\nb: >-\n  one\n  two\n",
    "? a\n: 1\n",
    "a:\n",
    "2: one\n050: fifty\ntrue: yes\n",
]
BAD = [
    (
        "run: 1\nmodel:\n  width: 2\n  depth: 3\n  width: 4\n",
        r"f\.yaml is not valid YAML: line 5, column 3: .*duplicate key \"width\"",
    ),
    ("a: [1\nb: 2\n", r"f\.yaml is not valid YAML: line 2, column 2: "),
    ("a: 1\nb: {c: 2024-13-45}\n", r"f\.yaml is not valid YAML: month must be in 1\.\.12"),
    ("a: !python/name:os.system 1\n", r"f\.yaml is not valid YAML: line 1, column 4: "),
    ("a: 1\n<<<<<<< ours\nb: 1\n=======\nb: 2\n>>>>>>> theirs\n", r"f\.yaml, line 2: this is a Git merge conflict"),
]


def by_dvc(text: str, folder: Path) -> object:
    path = folder / "params.yaml"
    path.write_text(text)
    return load_yaml(str(path))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("yaml")


def answer(read: Callable[[str, Any], object], text: str, place: Any) -> str:
    """Return what is read as text, since nan is not nan, or the error."""
    try:
        return repr(read(text, place))
    except Exception as error:
        return f"{type(error).__name__} {error}"


def test_a_document_means_what_it_means_to_dvc(folder: Path) -> None:
    texts = [f"a: {scalar}\n" for scalar in [*SCALARS.split(), *TAGGED]] + DOCUMENTS
    read = [(text, answer(parse_yaml, text, "f.yaml"), answer(by_dvc, text, folder)) for text in texts]
    assert [each for each in read if each[1] != each[2]] == []


def test_numbers_are_those_of_yaml_1_2() -> None:
    assert parse_yaml("[050, 0o50, yes, 1e3]", "f.yaml") == [50, 40, "yes", 1000.0]


@given(st.text("0123456789+-._xobeEainfyYnNtTrRuUlL:~ '\"", min_size=1, max_size=8))
@example("+_")
@example("2024-13-45")
def test_any_scalar_means_what_it_means_to_dvc(folder: Path, text: str) -> None:
    try:
        theirs = repr(by_dvc(f"a: {text}\n", folder))
    except (ParseError, ValueError, LookupError):
        with pytest.raises(DarkroomError):
            parse_yaml(f"a: {text}\n", "f.yaml")
    else:
        assert repr(parse_yaml(f"a: {text}\n", "f.yaml")) == theirs


@pytest.mark.parametrize(("text", "sentence"), BAD)
def test_what_is_wrong_is_named_with_its_line(text: str, sentence: str) -> None:
    with pytest.raises(DarkroomError, match=sentence):
        parse_yaml(text, "f.yaml")


def test_a_file_is_named(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text("a: 1\na: 2\n")
    with pytest.raises(DarkroomError, match=r"^params\.yaml is not valid YAML: line 2, column 1: "):
        read_yaml(Path("params.yaml"))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\n", None),
        ("a: 1\n<<<<<<< HEAD\n", 2),
        ("a: 1\n>>>>>>> other\n", 2),
        ("=======\n", 1),
        ("a: <<<<<<<< eight\n========\n", None),
    ],
)
def test_the_markers_of_a_merge_are_found(text: str, line: int | None) -> None:
    assert conflict(text) == line


def test_a_text_that_was_parsed_before_is_a_new_value():
    first = parse_yaml("a: [1]\n", "a.yaml")
    first["a"].append(2)
    assert parse_yaml("a: [1]\n", "a.yaml") == {"a": [1]}
