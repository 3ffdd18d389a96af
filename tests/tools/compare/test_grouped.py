"""The table of three and more revisions: a row for each setting, the best first."""

import io
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from darkroom.cli import main
from darkroom.tools.compare.grouped import as_text, grouped
from tools.compare.test_seeds import CARD, git, keep, params, repository, template  # noqa: F401  (fixtures)

EVERY = ["a1", "a2", "b0", "b1", "b2", "more"]


@pytest.mark.usefixtures("repository")
def test_seeds_share_a_row_and_the_best_is_first() -> None:
    frame = grouped(EVERY, {"a1": 10.0, "a2": 20.0})
    assert list(frame["revisions"]) == ["b0,b1,b2", "a1,a2", "more"]
    assert list(frame["train_generator.depth"]) == ["4", "2", "8"]
    assert frame["fd"].tolist() == pytest.approx([0.3, 1.3, 9.0])
    assert frame["fd_se"].tolist()[:2] == pytest.approx([0.1 / 3**0.5, 0.02**0.5 / 2**0.5])
    assert frame["verdict"][0] == "best" and all(each.startswith("worse by") for each in frame["verdict"][1:])
    assert frame["seconds"].tolist() == [0, 15, 0]
    assert as_text(frame)["fd"][0] == "0.3 ± 0.058"


@pytest.mark.usefixtures("repository")
def test_equal_parameters_of_other_code_are_rows_of_their_own() -> None:
    keep("again", 0.9, params(1))
    assert list(grouped(["a1", "again", "b0"])["revisions"]) == ["b0", "again", "a1"]


@pytest.mark.usefixtures("repository")
def test_the_verdict_is_of_the_file_that_is_shown() -> None:
    for name, fd in (("x", 1.0), ("y", 5.0), ("z", 6.0)):
        for folder, values in (("metrics", {"fd": 3.0, "fd_se": 0.1, "n": 100}), ("cards", CARD)):
            Path(folder, "decoder.json").write_text(json.dumps(values))
        keep(name, fd, params(0, depth=ord(name)))
    assert [each.partition(" by")[0] for each in grouped(["x", "y", "z"])["verdict"]] == ["best", "worse", "worse"]


@pytest.mark.usefixtures("repository")
def test_the_command_prints_a_table_or_csv(capsys: Any) -> None:
    assert main(["compare", *EVERY]) == 0
    assert "b0,b1,b2" in capsys.readouterr().out
    assert main(["compare", *EVERY, "--csv"]) == 0
    assert pd.read_csv(io.StringIO(capsys.readouterr().out))["fd"][0] == pytest.approx(0.3)
    for words in (["compare", "a1", "b1", "--csv"], ["compare", *EVERY, "--seeds"]):
        assert main(words) == 1
        assert "--csv is for three and more revisions" in capsys.readouterr().err


@pytest.mark.usefixtures("repository")
def test_without_the_first_score_there_is_no_verdict() -> None:
    for name in "xyz":
        for file in Path("metrics").iterdir():
            file.unlink()
        Path("metrics/clip.json").write_text(json.dumps({"recall": 0.5}))
        keep_only(name)
    frame = grouped(list("xyz"))
    assert len(frame) == 3 and "verdict" not in frame


def keep_only(name: str) -> None:
    """Keep an experiment whose only score is that of CLIP."""
    baseline = git("rev-parse", "HEAD")
    Path("params.yaml").write_text(yaml.safe_dump(params(0, depth=ord(name))))
    git("add", "--all")
    git("commit", "-qm", name)
    git("update-ref", f"refs/exps/{baseline[:2]}/{baseline[2:]}/{name}", "HEAD")
    git("reset", "-q", "--hard", "HEAD~1")
