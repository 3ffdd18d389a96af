"""An edit while a stage runs: what dvc.lock and the run cache hold is what was computed."""

from itertools import product
from typing import Any

import pytest

from dag.sandbox import ENGINES, Sandbox

# Of a stage, where its body is held, two values of its section, an input, and what Snakemake is asked for.
STAGES: dict[str, tuple[str, tuple[dict[str, Any], dict[str, Any]], str, str]] = {
    "ingest@first": (
        "ingest@first",
        ({"ingest": {"quality": 91}}, {"ingest": {"quality": 92}}),
        "data/first/numbers.txt",
        "data/shards/first",
    ),
    "train_extractor": (
        "train_extractor at 32",
        ({"train_extractor": {"training": {"seed": 1}}}, {"train_extractor": {"training": {"seed": 2}}}),
        "data/shards/note.txt",
        "models/extractor",
    ),
    "score_generator": (
        "score_generator",
        ({"score_generator": {"seed": 1}}, {"score_generator": {"seed": 2}}),
        "models/extractor/note.txt",
        "samples/generator",
    ),
}
EDITS = ("parameter", "input", "source")
QUICK = {  # the others: `make test-all`
    ("dvc", "ingest@first", "input"),
    ("dvc", "train_extractor", "parameter"),
    ("snakemake", "score_generator", "source"),
}
CASES = [
    pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow) for case in product(ENGINES, STAGES, EDITS)
]


@pytest.mark.parametrize(("engine", "stage", "edit"), CASES)
def test_what_is_recorded_was_computed(toy: Sandbox, engine: str, stage: str, edit: str) -> None:
    place, (given, edited), path, target = STAGES[stage]
    command = ("dvc", "repro", "--single-item", stage) if engine == "dvc" else (*ENGINES["snakemake"], target)
    source = toy.root / f"src/darkroom/stages/{stage.partition('@')[0]}.py"
    file = toy.root / path if edit == "input" else source
    before = file.read_text() if file.exists() else None
    recorded = toy.lock()[stage]
    toy.edit(given)
    with toy.held(place, *command) as run:
        if edit == "parameter":
            toy.edit(edited)
        else:
            file.write_text(f"{before or ''}\nprint(end='')\n")
    if engine == "snakemake" and stage == "ingest@first" and edit != "source":  # starts again with the edit
        assert run.returncode == 0 and toy.lock()[stage] != recorded and not toy.stale(stage)
        return
    assert run.returncode != 0 and toy.lock()[stage] == recorded

    toy.edit(given)
    if before is None:
        file.unlink(missing_ok=True)
    elif edit != "parameter":
        file.write_text(before)
    toy.run(*command)
    assert toy.lock()[stage] != recorded and not toy.stale(stage)
    if stage == "train_extractor":
        assert "resumes at image 64 of 64" in toy.log(stage), "trained again after the edit was undone"
    if edit == "parameter":
        toy.edit(edited)
        assert toy.ran(*command) == [stage], "the run cache had a result for the edited value"
        assert "resumes" not in toy.log(stage), "it continued from a state of the value before"
