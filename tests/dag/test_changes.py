"""A change runs exactly what depends on it, in the toy DAG; what a change of the real one reaches: `test_reach.py`."""

import yaml

from dag.sandbox import ENGINES, NOTHING, Sandbox

TRAINING = "src/darkroom/stages/train_extractor.py"


def test_a_parameter_runs_what_is_below_it_and_going_back_runs_nothing(toy: Sandbox, toy_made: Sandbox) -> None:
    toy.edit({"score_generator": {"seed": 1}})
    assert toy.ran(*ENGINES["dvc"]) == ["score_generator", "report"]
    assert toy.hashes() != toy_made.hashes()
    toy.assert_nothing_to_do()
    toy.run("git", "checkout", "--quiet", "params.yaml")
    assert toy.ran(*ENGINES["snakemake"]) == []
    assert toy.hashes() == toy_made.hashes()


def test_branches_there_and_back_cost_a_checkout_and_no_run(toy: Sandbox) -> None:
    toy.run("git", "checkout", "--quiet", "-b", "other")
    toy.edit(
        {"train_extractor": {"training": {"seed": 1}}, "run": {"device": "auto", "max_lost_seconds": 1, "keep": 3}}
    )
    assert toy.ran("dvc", "repro") == ["train_extractor", "score_generator", "report"]
    toy.commit("another seed, and what cannot change a result")
    other = toy.hashes()
    for branch in ("main", "other"):
        toy.run("git", "checkout", "--quiet", branch)
        toy.dvc("checkout")
        assert toy.stale() == set()
        assert (toy.hashes() == other) == (branch == "other")
    assert NOTHING in toy.snakemake("--dry-run")


def words_and_layout(sandbox: Sandbox) -> None:
    """Change docstrings, comments and layout in modules that stages run."""
    for module in ("environment.py", "errors.py", "artifacts/atomic.py", "stages/report.py", "stages/ingest.py"):
        path = sandbox.root / "src/darkroom" / module
        lines = path.read_text().splitlines(keepends=True)
        assert lines[0].startswith('"""')
        path.write_text('"""Changed. ' + "".join(lines)[3:] + "\n\n\n# another line\n")
    sandbox.replace(TRAINING, "sha256(weights + images.to_bytes(8))", "sha256(\n  weights\n  + images.to_bytes(8)\n )")


def test_words_and_layout_run_nothing_and_a_function_what_runs_it(toy: Sandbox) -> None:
    """The new loss is the old one, so the weights are the same bytes, and what reads them is up to date after all."""
    words_and_layout(toy)
    assert toy.ran(*ENGINES["snakemake"]) == []
    assert toy.stale() == set()
    toy.replace(TRAINING, ").digest()", ").digest() + b''")
    why = toy.darkroom("why", "report")
    assert "report is stale" in why and "it waits for train_extractor, which is stale" in why
    assert "darkroom.stages.train_extractor: loss changed" in why
    assert toy.ran(*ENGINES["dvc"]) == ["train_extractor"]
    assert NOTHING in toy.snakemake("--dry-run")


def test_a_lock_without_the_code_gives_the_same_plan(toy: Sandbox) -> None:
    """As one of before there was such a stage, or of another branch: DVC's answer of before it ran is not used."""
    lock = toy.root / "dvc.lock"
    values = yaml.safe_load(lock.read_text())
    del values["stages"]["code"]
    lock.write_text(yaml.safe_dump(values, sort_keys=False))
    assert NOTHING in toy.snakemake("--dry-run")
    del values["stages"]["train_extractor"]
    lock.write_text(yaml.safe_dump(values, sort_keys=False))
    toy.edit({"train_extractor": {"training": {"seed": 1}}})
    assert toy.ran(*ENGINES["snakemake"]) == ["train_extractor", "score_generator", "report"]


def test_a_part_that_is_added_changed_or_taken_out(toy: Sandbox, toy_made: Sandbox) -> None:
    below = ["train_extractor", "score_generator", "report"]
    parts = {name: {"source": "folder", "path": f"data/{name}", "embeddings": "data/none"} for name in ("first", "new")}
    (toy.root / "data/new").mkdir()
    file = toy.root / "data/new/numbers.txt"
    file.write_text("three\n")
    second = yaml.safe_load((toy.root / "params.yaml").read_text())["parts"]["second"]
    toy.edit({"parts": {**parts, "second": second}})
    assert toy.ran(*ENGINES["snakemake"]) == ["ingest@new", *below]
    file.write_text("four\n")
    assert toy.stale() == {"ingest@new"}
    assert toy.ran("dvc", "repro") == ["ingest@new", *below]
