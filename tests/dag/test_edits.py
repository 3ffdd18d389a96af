"""An edit while a stage runs: what dvc.lock and the run cache hold is what was computed."""

import time
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from dag.long_training import resumed_at, told
from dag.sandbox import Sandbox, side_by_side

# A stage of each kind: two values of a parameter, an input that it reads, and what Snakemake is asked for.
STAGES = {
    "ingest@first": ("ingest.quality", (91, 92), "data/none", "data/shards/first"),
    "catalog": ("catalog.grid_images", (5, 6), "data/shards/note.txt", "data/catalog"),
    "train_extractor": ("train_extractor.training.seed", (5, 6), "data/catalog/note.txt", "models/extractor"),
    "encode_latents@first": ("encode_latents.batch", (31, 32), "models/tokenizer/note.txt", "data/latents/first"),
    "sample_generator": ("sample_generator.common.seed", (5, 6), "models/generator/note.txt", "samples/generator"),
    "score_generator": ("score_generator.seed", (5, 6), "samples/generator/note.txt", "metrics/generator.json"),
    "report": ("report.title", ("one", "two"), "samples/note.txt", "reports"),
}
EDITS = ("parameter", "input", "source")
ENGINES = ("dvc", "snakemake")
QUICK = [  # the others: `make test-all`
    ("dvc", "catalog", "input"),
    ("dvc", "train_extractor", "parameter"),
    ("snakemake", "train_extractor", "parameter"),
    ("snakemake", "sample_generator", "source"),
]


def set_value(sandbox: Sandbox, key: str, value: object) -> None:
    """Set a parameter by its dotted key."""
    for name in reversed(key.split(".")):
        value = {name: value}
    sandbox.edit(dict(value))  # type: ignore[call-overload]


def started(sandbox: Sandbox, stage: str, since: int) -> bool:
    """Return whether the body of a stage has begun since a line of the history."""
    return any((line["stage"], line["event"]) == (stage, "start") for line in sandbox.history()[since:])


def wrong(sandbox: Sandbox, engine: str, stage: str, edit: str) -> Iterator[str]:
    """Edit something while a stage runs, take it back, and make it again; yield what was wrong."""
    key, (given, edited), path, target = STAGES[stage]
    command = ("dvc", "repro", "--single-item", stage) if engine == "dvc" else ("snakemake", "--cores", "2", target)
    name = stage.partition("@")[0]
    keeps = name in ("train_extractor", "sample_generator")  # a state, which is begun a second after the stage
    file = sandbox.root / (path if edit == "input" else f"src/darkroom/stages/{name}.py")
    before = file.read_text() if file.exists() else None
    recorded, since = sandbox.lock()[stage], len(sandbox.history())
    set_value(sandbox, key, given)

    states = set((sandbox.root / ".darkroom/state").glob("*/parameters.json"))
    with sandbox.start(*command) as run:
        while not started(sandbox, stage, since) or (
            keeps and states == set((sandbox.root / ".darkroom/state").glob("*/parameters.json"))
        ):
            assert run.poll() is None
            time.sleep(0.01)
        if edit == "parameter":
            set_value(sandbox, key, edited)
        else:
            file.write_text(f"{before or ''}\nEDITED = 1\n")
    if run.returncode == 0 or sandbox.lock()[stage] != recorded:
        yield f"recorded with {run.returncode}"

    set_value(sandbox, key, given)
    if before is None:
        file.unlink(missing_ok=True)
    elif edit != "parameter":
        file.write_text(before)
    sandbox.run(*command)
    if sandbox.lock()[stage] == recorded or sandbox.stale(stage):
        yield "not made after the edit was undone"
    if name.startswith("train_") and resumed_at(told(sandbox)) != 64:
        yield "trained again after the edit was undone"
    if edit == "parameter":
        set_value(sandbox, key, edited)
        with sandbox.bodies() as ran:
            sandbox.run(*command)
        if ran != [stage]:
            yield f"the run cache had a result for the edited value: {ran} ran"
        if name.startswith("train_") and resumed_at(told(sandbox)):
            yield "the edited value continued from a state of the value before"


def story(sandbox: Sandbox, engine: str, cases: list[tuple[str, str]]) -> list[str]:
    """Return what was wrong in all cases of an engine, a line each."""
    return [f"{stage}, {edit}: {line}" for stage, edit in cases for line in wrong(sandbox, engine, stage, edit)]


@pytest.mark.parametrize("cases", ["quick", pytest.param("all", marks=pytest.mark.slow)])
def test_what_is_recorded_was_computed(committed: Sandbox, tmp_path: Path, cases: str) -> None:
    chosen = QUICK if cases == "quick" else [case for case in product(ENGINES, STAGES, EDITS) if case not in QUICK]
    stories = {
        engine: partial(
            story,
            committed.copy(tmp_path / engine / "a clone with spaces"),
            engine,
            [(stage, edit) for name, stage, edit in chosen if name == engine],
        )
        for engine in ENGINES
    }
    assert {engine: lines.result() for engine, lines in side_by_side(stories).items()} == {"dvc": [], "snakemake": []}
