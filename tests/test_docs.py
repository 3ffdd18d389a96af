"""What docs/architecture.md and docs/originals.md name is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/architecture.md").read_text()
CODE = sorted(set(re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.(?:py|smk|yaml))`", PAGE)))


@pytest.mark.parametrize("path", CODE)
def test_a_file_that_the_reading_paths_name_exists(path: str) -> None:
    assert (ROOT / "src/darkroom" / path).is_file() or (ROOT / path).is_file()


def test_a_step_is_nine_files_and_an_image_six() -> None:
    for heading, most in (("## One training step", 9), ("## One image", 6)):
        section = PAGE.split(heading)[1].split("## ")[0]
        assert 3 < len(re.findall(r"^\| `", section, re.MULTILINE)) <= most


NAMED = re.findall(r"`([a-z_/]+\.py)::(\w+)", (ROOT / "docs/originals.md").read_text())


def test_each_test_that_the_page_of_originals_names_is_there() -> None:
    assert len(NAMED) > 300
    known = {path: set(re.findall(r"^def (test_\w+)", (ROOT / "tests" / path).read_text(), re.M)) for path, _ in NAMED}
    assert [f"{path}::{name}" for path, name in NAMED if name not in known[path]] == []
