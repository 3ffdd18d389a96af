"""A change runs exactly what depends on it."""

from pathlib import Path

import pytest

from dag.sandbox import ENGINES, Sandbox

Guided = dict[str, tuple[Sandbox, list[str]]]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_parameter_runs_what_is_below_it(guided: Guided, engine: str) -> None:
    sandbox, ran = guided[engine]
    assert ran == ["sample_generator", "score_generator", "report"]
    sandbox.assert_nothing_to_do()


def test_a_parameter_gives_the_same_bytes_through_both_engines(guided: Guided, committed: Sandbox) -> None:
    one, other = (guided[engine][0].hashes() for engine in ENGINES)
    assert one == other != committed.hashes()


def test_going_back_runs_nothing(guided: Guided, committed: Sandbox, tmp_path: Path) -> None:
    sandbox = guided["snakemake"][0].copy(tmp_path / "a clone with spaces")
    sandbox.run("git", "checkout", "--quiet", "params.yaml")
    with sandbox.bodies() as ran:
        sandbox.snakemake()
    assert ran == []
    assert sandbox.hashes() == committed.hashes()


def test_what_cannot_change_a_result_runs_nothing(fresh: Sandbox) -> None:
    fresh.edit({"run": {"device": "auto", "workers": 1, "micro_batch": 8, "at_risk": 1, "keep": 3, "grid_every": 32}})
    fresh.assert_nothing_to_do()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_picture_of_the_data_trains_nothing(fresh: Sandbox, engine: str) -> None:
    fresh.edit({"catalog": {"grid_images": 2}})
    with fresh.bodies() as ran:
        fresh.run(*ENGINES[engine])
    assert ran == ["catalog", "report"]


def test_branches_there_and_back_cost_a_checkout_and_no_run(guided: Guided, tmp_path: Path) -> None:
    sandbox = guided["dvc"][0].copy(tmp_path / "a clone with spaces")
    sandbox.run("git", "checkout", "--quiet", "-b", "other")
    sandbox.commit("another guidance")
    other = sandbox.hashes()
    for branch in ("main", "other"):
        sandbox.run("git", "checkout", "--quiet", branch)
        sandbox.dvc("checkout")
        sandbox.assert_nothing_to_do()
        assert (sandbox.hashes() == other) == (branch == "other")
