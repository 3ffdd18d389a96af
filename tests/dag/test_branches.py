"""Switching branches costs a checkout, never a run."""

from pathlib import Path

from dag.sandbox import Sandbox


def test_there_and_back_nothing_is_to_be_done(guided: dict[str, tuple[Sandbox, list[str]]], tmp_path: Path) -> None:
    sandbox = guided["dvc"][0].copy(tmp_path / "a clone with spaces")
    sandbox.run("git", "checkout", "--quiet", "-b", "other")
    sandbox.commit("another guidance")
    other = sandbox.hashes()
    for branch in ("main", "other"):
        sandbox.run("git", "checkout", "--quiet", branch)
        sandbox.dvc("checkout")
        sandbox.assert_nothing_to_do()
        assert (sandbox.hashes() == other) == (branch == "other")
