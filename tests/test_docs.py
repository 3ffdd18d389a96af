"""What docs/architecture.md and docs/originals.md name is there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/architecture.md").read_text()
CODE = sorted(set(re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.(?:py|smk|yaml))`", PAGE)))


@pytest.mark.parametrize("path", CODE)
def test_a_file_that_the_reading_paths_name_exists(path: str) -> None:
    assert (ROOT / "src/darkroom" / path).is_file() or (ROOT / path).is_file()


def test_the_page_names_the_files_that_a_step_and_a_sampler_call_execute() -> None:
    """And these are no more than `make lint` allows, without an import cycle."""
    run = subprocess.run(
        [sys.executable, ROOT / "workflow/lint/house.py", "--trace"], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr
    for heading, name in (("## One optimizer step", "an optimizer step"), ("## One sampler call", "a sampler call")):
        section = PAGE.split(heading)[1].split("\n## ")[0]
        files = re.search(rf"^files of {name}: (.*\.py.*)$", run.stdout, re.MULTILINE)[1].split(", ")
        assert [file for file in files if file.rpartition("/")[2] not in section] == []


NAMED = re.findall(r"`([a-z_/]+\.py)::(\w+)", (ROOT / "docs/originals.md").read_text())


def test_each_test_that_the_page_of_originals_names_is_there() -> None:
    assert len(NAMED) > 300
    known = {path: set(re.findall(r"^def (test_\w+)", (ROOT / "tests" / path).read_text(), re.M)) for path, _ in NAMED}
    assert [f"{path}::{name}" for path, name in NAMED if name not in known[path]] == []
