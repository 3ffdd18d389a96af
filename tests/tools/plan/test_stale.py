"""DVC is asked: what changed, and what is below it."""

from pathlib import Path

import pytest
from dvc.cli import main as dvc

from darkroom.dag.repo import lock_seconds
from darkroom.errors import DarkroomError
from darkroom.tools.plan.plan import Dag, ask_dvc

STAGES = """
stages:
  report: {cmd: cp b c, deps: [b], outs: [c]}
  train_generator: {cmd: cp a b, deps: [a], outs: [b]}
  catalog: {cmd: cp source d, deps: [source], outs: [d]}
  ingest: {foreach: [y, x], do: {cmd: "echo ${item} > ${item}", outs: ["${item}"]}}
"""


def test_what_is_below_a_stale_stage_is_stale(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DarkroomError, match="DVC cannot determine what is out of date"):
        ask_dvc()
    Path("dvc.yaml").write_text(STAGES)
    for name in ("a", "source"):
        Path(name).write_text(name)
    for words in (["init", "--no-scm", "--quiet"], ["repro", "--quiet"]):
        assert dvc(words) == 0
    known = ["ingest@x", "ingest@y", "catalog", "train_generator", "report"]
    above = {
        "catalog": set(),
        "ingest@x": set(),
        "ingest@y": set(),
        "train_generator": set(),
        "report": {"train_generator"},
    }
    assert ask_dvc() == Dag(known, set(), above)
    Path("a").write_text("other")
    assert ask_dvc().stale == {"train_generator", "report"}  # report itself sees no change yet
    Path("x").unlink()
    assert ask_dvc().stale == {"train_generator", "report", "ingest@x"}
    assert lock_seconds() > 0 == lock_seconds(Path("none"))
