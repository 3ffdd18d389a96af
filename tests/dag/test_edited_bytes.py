"""Edits of the source, each followed by a run of all stages: whatever changes was declared stale."""

from typing import Any

import pytest

from dag.fingerprint.test_edits import EDITS, edited
from dag.sandbox import Sandbox

pytestmark = pytest.mark.slow
# Edits that change no byte of the tiny DAG, since it does without what they change, or whose stage fails.
WITHOUT = {
    "a name in the environment",
    "the recipe of the chosen kind",
    "the sampler of the chosen kind",
    "the threads of a stage",  # the networks are so small that two threads compute as one does
}


def outputs(entry: dict[str, Any]) -> dict[str, str]:
    """Return the MD5 of each output of a stage, from its entry in dvc.lock."""
    return {out["path"]: out["md5"] for out in entry.get("outs", [])}


def inputs(entry: dict[str, Any], code: bool) -> dict[str, str]:
    """Return the MD5 of each input of a stage that is a fingerprint of code, or that is none."""
    found = {dep["path"]: dep["md5"] for dep in entry.get("deps", [])}
    return {path: md5 for path, md5 in found.items() if path.startswith("build/code") == code}


@pytest.mark.parametrize("story", sorted({story for story, edit in EDITS.items() if edit.changes} - WITHOUT))
def test_every_stage_that_changes_was_declared_stale(fresh: Sandbox, story: str) -> None:
    edit, before = EDITS[story], fresh.lock()
    path = fresh.root / "src/darkroom" / edit.file
    path.write_text(edited(path.read_text(), edit))
    said = fresh.attempt("dvc", "repro", "--force", "--keep-going").stdout
    after = fresh.lock()
    names = before.keys() - {"code"}
    stale = {name for name in names if inputs(before[name], True) != inputs(after[name], True)}
    same = {name for name in names if inputs(before[name], False) == inputs(after[name], False)}
    changed = {name for name in same if outputs(before[name]) != outputs(after[name])}
    assert changed <= stale, said[-3000:]
    assert changed, said[-3000:]
