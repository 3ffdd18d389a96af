"""A change runs exactly what depends on it."""

from pathlib import Path

import pytest

from dag.sandbox import ENGINES, NOTHING, Sandbox

Guided = dict[str, tuple[Sandbox, list[str]]]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_parameter_runs_what_is_below_it(guided: Guided, engine: str) -> None:
    sandbox, ran = guided[engine]
    assert ran == ["sample_dit", "score_dit", "report"]
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


def another_line(sandbox: Sandbox, module: str) -> None:
    """Add a comment to a module: another file, the same results."""
    code = sandbox.root / "src/darkroom" / module
    code.write_text(code.read_text() + "\n# another line\n")


def test_a_change_in_a_dit_file_reaches_no_tokenizer(fresh: Sandbox) -> None:
    another_line(fresh, "generators/dit.py")
    assert "train_dit" in fresh.stale()
    with fresh.bodies() as ran:
        fresh.dvc("repro", "train_tokenizer", "train_extractor", "encode_latents", "score_tokenizer", "reference_stats")
    assert ran == []


def test_a_change_in_a_file_runs_just_what_imports_it(fresh: Sandbox) -> None:
    """All other stages stand below the catalog, and none of them runs: its bytes are the same."""
    another_line(fresh, "data/catalog_writer.py")
    with fresh.bodies() as ran:
        fresh.dvc("repro")
    assert ran == ["catalog"]
    fresh.assert_nothing_to_do()


@pytest.fixture(scope="module")
def grown(committed: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> tuple[Sandbox, list[str]]:
    """A copy in which Snakemake made the catalog of three parts, and the bodies that ran."""
    sandbox = committed.copy(tmp_path_factory.mktemp("grown") / "a clone with spaces")
    starts = {"first": 0, "second": 120, "third": 240}
    part = {"source": "digits", "path": "data/none"}
    sandbox.edit({"parts": {name: {**part, "start": at, "stop": at + 120} for name, at in starts.items()}})
    with sandbox.bodies() as ran:
        sandbox.snakemake("data/catalog")
    return sandbox, ran


def test_a_new_part_runs_alone(grown: tuple[Sandbox, list[str]]) -> None:
    sandbox, ran = grown
    assert ran == ["ingest@third", "catalog"]
    with sandbox.bodies() as ran:
        sandbox.dvc("repro", "catalog")
    assert ran == []


def test_a_part_that_is_gone_leaves_no_trace(
    grown: tuple[Sandbox, list[str]], committed: Sandbox, tmp_path: Path
) -> None:
    sandbox = grown[0].copy(tmp_path / "a clone with spaces")
    assert sandbox.hashes("catalog") != committed.hashes("catalog")
    sandbox.run("git", "checkout", "--quiet", "params.yaml")
    with sandbox.bodies() as ran:
        sandbox.dvc("repro", "catalog")
    assert ran == ["catalog"], "it was not made anew from two parts"
    assert any((sandbox.root / "data/shards/third").rglob("*.tar")), "nothing was left over"
    assert sandbox.hashes("catalog") == committed.hashes("catalog")
    assert sandbox.stale("catalog") == set()
    assert NOTHING in sandbox.snakemake("--dry-run", "data/catalog")
