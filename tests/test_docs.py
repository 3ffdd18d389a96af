"""What the docs name exists: files, tests, commands with their options, keys, links; and their length."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import groupby, pairwise
from pathlib import Path

import pytest
import yaml

from darkroom.commands import command_line, commands
from darkroom.dag.stages import STAGES
from darkroom.data.splits import split_of

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
KEYS = set(re.findall(r"^\| `([\w.*]+)`", (ROOT / "docs/reference/params.md").read_text(), re.MULTILINE))
GENERATED = "params.md"
PAGE = (ROOT / "docs/explanation/architecture.md").read_text()
CODE = sorted(set(re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.(?:py|smk|yaml))`", PAGE)))


def test_the_files_that_the_reading_paths_name_exist() -> None:
    there = {path for path in CODE if (ROOT / "src/darkroom" / path).is_file() or (ROOT / path).is_file()}
    assert CODE and set(CODE) - there == set()


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


NAMED = re.findall(r"`([a-z_/]+\.py)::(\w+)", (ROOT / "docs/reference/originals.md").read_text())


def test_each_test_that_the_page_of_originals_names_is_there() -> None:
    assert len(NAMED) > 300
    known = {path: set(re.findall(r"^def (test_\w+)", (ROOT / "tests" / path).read_text(), re.M)) for path, _ in NAMED}
    assert [f"{path}::{name}" for path, name in NAMED if name not in known[path]] == []


def blocks(page: Path, language: str, runs: bool = False) -> Iterator[str]:
    """Yield the code blocks of a language; with `runs`, without those that are marked `.norun`."""
    marked = "" if runs else rf"|\{{ \.{language}[^}}]*\}}"
    yield from re.findall(rf"^```(?:{language}{marked})\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def words_of(page: Path) -> Iterator[list[str]]:
    """Yield the words of each command of a page, without its comment."""
    for block in blocks(page, "bash"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.shlex(line, posix=True, punctuation_chars=True)
            words.whitespace_split = True
            for operator, command in groupby(words, key=lambda word: set(word) <= set("&|;")):
                if not operator:
                    yield list(command)


def problem(words: list[str]) -> str | None:
    """Return what is wrong with a command: an unknown command, option, stage or key."""
    program, *rest = words
    if program == "darkroom" and rest and not rest[0].isupper():
        name, *given = rest
        if name.startswith("-") or name in STAGES:
            return None
        if name not in commands():
            return f"no command {name}"
        options = {option for each in command_line(name).params for option in (*each.opts, *each.secondary_opts)}
        unknown = [
            each for each in given if each.startswith("-") and each.partition("=")[0] not in {*options, "--help"}
        ]
        return f"no option {unknown[0]}" if unknown else None
    if program == "dvc" and rest[:1] == ["repro"]:
        stages = [each for each in rest[1:] if not each.startswith("-") and each.partition("@")[0] not in STAGES]
        return f"no stage {stages[0]}" if stages else None
    return None


def overridden(words: list[str]) -> list[str]:
    """Return the keys that -S sets."""
    pairs = pairwise(words)
    return [value.lstrip("+").partition("=")[0] for option, value in pairs if option in ("-S", "--set-param")]


def having(language: str) -> pytest.MarkDecorator:
    """Return the mark that runs a test on each page with a block of a language."""
    pages = [page for page in PAGES if any(blocks(page, language))]
    return pytest.mark.parametrize("page", pages, ids=lambda path: path.relative_to(ROOT).as_posix())


@having("bash")
def test_commands_options_and_keys_exist(page: Path) -> None:
    wrong = [f"{shlex.join(words)}: {text}" for words in words_of(page) if (text := problem(words))]
    keys = [key for words in words_of(page) for key in overridden(words) if "KEY" not in key]
    wrong += [key for key in keys if not any(fnmatchcase(key, known) for known in KEYS) and not shared(key)]
    assert wrong == []


def shared(key: str) -> bool:
    """Return whether a key is one of `training` in the section of a stage or kind, listed only once."""
    section, _, own = key.rpartition(".training.")
    return any(f".{known}".endswith(f".training.{own}") for known in KEYS) and section.partition(".")[0] in STAGES


@having("python")
def test_python_blocks_compile(page: Path) -> None:
    for block in blocks(page, "python"):
        compile(block, str(page), "exec")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_to_files(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    missing = [link for link in links if link and not (page.parent / link).exists()]
    assert missing == []


def test_forms_and_citation_are_yaml() -> None:
    for path in (*(ROOT / ".github").rglob("*.yml"), ROOT / "CITATION.cff"):
        assert yaml.safe_load(path.read_text())


def test_nothing_is_left_to_fill_in() -> None:
    """No placeholder and no empty item of a list."""
    left = re.compile(r"TODO|\bNNNN\b|^\s*-\s*$|[.)] -$", re.MULTILINE)
    assert [page for page in PAGES if left.search(page.read_text())] == []


def test_the_docs_stay_short() -> None:
    pages = [page for page in PAGES[2:] if page.parent.name != "results" and page.name != GENERATED]
    assert sum(len(page.read_text().split()) for page in pages) <= 45_000
    assert len((ROOT / "README.md").read_text().splitlines()) <= 90


def test_the_captions_of_the_demo_are_held_out() -> None:
    """They show that the generator makes captions that it was not trained on."""
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    assert params["ingest"]["group"] == "caption"
    for name in ("Makefile", "README.md", "docs/reference/python.md", "docs/tutorials/first-run.md"):
        texts = set(re.findall(r"\"(an? \w+ \w+ on \w+)\"", (ROOT / name).read_text()))
        assert texts and {split_of(text, params["ingest"]["splits"], 0) for text in texts} == {"test"}, name
