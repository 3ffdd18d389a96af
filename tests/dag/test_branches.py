"""Switching branches costs a checkout, never a run."""

from dag.sandbox import Sandbox


def test_there_and_back_nothing_is_to_be_done(fresh: Sandbox) -> None:
    fresh.run("git", "checkout", "--quiet", "-b", "other")
    fresh.edit({"sample_dit": {"guidance": 3.0}})
    fresh.dvc("repro")
    fresh.commit("another guidance")
    other = fresh.hashes()
    for branch in ("main", "other"):
        fresh.run("git", "checkout", "--quiet", branch)
        fresh.dvc("checkout")
        fresh.assert_nothing_to_do()
        assert (fresh.hashes() == other) == (branch == "other")
