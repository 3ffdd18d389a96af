"""A change runs exactly what depends on it."""

from dag.sandbox import Sandbox

BELOW_SAMPLES = ["sample_dit", "score_dit", "report"]


def test_a_parameter_through_dvc(fresh: Sandbox) -> None:
    fresh.edit({"sample_dit": {"guidance": 2.0}})
    with fresh.bodies() as ran:
        fresh.dvc("repro")
    assert ran == BELOW_SAMPLES
    fresh.assert_nothing_to_do()


def test_a_parameter_through_snakemake(fresh: Sandbox) -> None:
    fresh.edit({"sample_dit": {"guidance": 2.0}})
    with fresh.bodies() as ran:
        fresh.snakemake()
    assert ran == BELOW_SAMPLES
    fresh.assert_nothing_to_do()


def test_going_back_runs_nothing(fresh: Sandbox) -> None:
    before = fresh.hashes()
    fresh.edit({"report": {"title": "another"}})
    fresh.snakemake()
    fresh.run("git", "checkout", "--quiet", "params.yaml")
    with fresh.bodies() as ran:
        fresh.snakemake()
    assert ran == []
    assert fresh.hashes() == before


def test_what_cannot_change_a_result_runs_nothing(fresh: Sandbox) -> None:
    fresh.edit(
        {"run": {"device": "auto", "workers": 1, "micro_batch": 8, "checkpoint_every": 1, "keep": 3, "grid_every": 32}}
    )
    fresh.assert_nothing_to_do()


def test_a_change_in_a_dit_file_reaches_no_tokenizer(fresh: Sandbox) -> None:
    code = fresh.root / "src/darkroom/generators/dit.py"
    code.write_text(code.read_text() + "\n# another line\n")
    assert "train_dit" in fresh.stale()
    with fresh.bodies() as ran:
        fresh.dvc("repro", "train_tokenizer", "train_extractor", "encode_latents", "score_tokenizer", "reference_stats")
    assert ran == []


def test_a_new_part_runs_alone(fresh: Sandbox) -> None:
    parts = {name: {"source": "digits", "start": start, "stop": start + 120} for name, start in PARTS.items()}
    fresh.edit({"parts": parts})
    with fresh.bodies() as ran:
        fresh.snakemake("data/catalog")
    assert ran == ["ingest@third", "catalog"]
    with fresh.bodies() as ran:
        fresh.dvc("repro", "catalog")
    assert ran == []


PARTS = {"first": 0, "second": 120, "third": 240}
