"""A checkout has the same bytes under every setting of git, and what Snakemake needs of the person's own files."""

import os
from pathlib import Path

import pytest

from dag.sandbox import Sandbox


def test_a_checkout_with_crlf_has_the_same_bytes_and_its_scripts_run(tmp_path: Path) -> None:
    sandbox = Sandbox.clone(tmp_path / "source")
    sandbox.run("git", "clone", "--quiet", "--config", "core.autocrlf=true", ".", str(tmp_path / "clone"))
    clone = Sandbox(tmp_path / "clone")
    names = clone.run("git", "ls-files", "-z").split("\0")[:-1]
    assert len(names) > 500 and any(name.endswith(".png") for name in names)
    changed = [name for name in names if (clone.root / name).read_bytes() != (sandbox.root / name).read_bytes()]
    assert changed == []
    assert clone.run("git", "status", "--porcelain") == ""
    lock = clone.run("git", "hash-object", "--no-filters", "requirements.lock").strip()
    (clone.root / ".venv").mkdir()
    (clone.root / ".venv/stamp").write_text(f"{lock} {clone.root}\n")
    clone.run("workflow/setup")  # finds an environment and makes none


def test_a_home_that_cannot_be_read_is_named(toy: Sandbox) -> None:
    toy.environment |= {"HOME": os.devnull}
    del toy.environment["DVC_GLOBAL_CONFIG_DIR"]
    with pytest.raises(AssertionError, match=r"'/dev/null/.*'\. If that is in HOME, set HOME to a folder"):
        toy.snakemake("--dry-run")
