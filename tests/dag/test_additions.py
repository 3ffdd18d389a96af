"""What each addition touches, and that the DAG runs with it.

A tokenizer and a generator are a room, a line of the table of kinds and a section of params.yaml; an objective is a
file, a line of the table of objectives and a line of the torch-free settings; a metric is a file and a line, of images
or of the features of every extractor. A source is a file, its settings beside those of the others, and a section of
params.yaml; a stage is its body, its settings, a line of the table of stages, and its sections of dvc.yaml and
params.yaml; a command is a file.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from dag.sandbox import ENGINES, Sandbox

ADDITIONS = Path(__file__).resolve().parents[1] / "additions"
SOURCE = Path("src/darkroom")
TOKENIZER = {
    "settings": "patches.settings:Patches",
    "network": "patches.network:PatchTokenizer",
    "recipe": "patches.recipe:PatchRecipe",
}
GENERATOR = {
    "settings": "normal.settings:Normal",
    "recipe": "normal.recipe:NormalRecipe",
    "sampler": "normal.sample:NormalSampler",
    "sampling": "normal.settings:Sampling",
}
# What is copied from the additions of the tests.
COPIED = {
    "tokenizer": "models/tokenizers/patches",
    "generator": "models/generators/normal",
    "objective.py": "diffusion/arc.py",
    "brightness.py": "metrics/brightness.py",
    "spread.py": "metrics/spread.py",
}
# The lines that are inserted: file, before what, text.
LINES = [
    ("models/kinds.py", '"kl": {', f'"patches": {TOKENIZER!r},\n        '),
    ("models/kinds.py", '"dit": {', f'"normal": {GENERATOR!r},\n        '),
    ("diffusion/objectives.py", '"flow": Flow.of', '"arc": Arc.of, '),
    ("diffusion/objectives.py", "from darkroom.diffusion.flow", "from darkroom.diffusion.arc import Arc\n"),
    ("diffusion/settings.py", '"flow": ("euler", "heun", "euler_maruyama", "dpm")', '"arc": ("euler",),\n    '),
    ("metrics/table.py", "    ClassMetric(),\n", "    Brightness(),\n"),
    ("metrics/table.py", "    CMMD_METRIC,\n", "    Spread(),\n"),
    ("metrics/table.py", "from darkroom.metrics.score import", "from darkroom.metrics.spread import Spread\n"),
    ("metrics/table.py", "from darkroom.metrics.labels", "from darkroom.metrics.brightness import Brightness\n"),
]
CHOSEN = {
    "train_tokenizer": {"kind": "patches", "patches": {"patch": 4, "latent_channels": 4, "training": {}}},
    "train_generator": {"kind": "normal", "normal": {"training": {}}},
    "sample_generator": {"normal": {"temperature": 0.5}},
    "train_prior": {"diffusion": {"objective": "arc"}, "evaluate": {"solver": "euler"}},
    "sample_text": {"prior": {"solver": "euler"}},
}
# What is copied, and the lines that are inserted, of a source, a stage and a command.
STRIPES = """class Stripes(Section):
    \"""Grey images with stripes.\"""

    images: int = 40
    \"""Number of images.\"""


"""
COUNT_LABELS = """
  count_labels:
    cmd: PYTHONPATH=src python -m darkroom count_labels
    params: [count_labels]
    deps: [build/code/count_labels.json, data/shards/stripes]
    outs: [samples/labels]
"""
SMALL = {
    "source": (
        {"stripes.py": "data/sources/stripes.py"},
        [
            ("params/parts.py", '"digits", "shapes", "torchvision"', '"stripes", '),
            ("params/parts.py", '        "hub": {', '        "stripes": {"source": "stripes:Stripes"},\n'),
            ("params/parts.py", "class Sources(Section)", STRIPES),
            ("params/parts.py", "    digits: Digits | None", "    stripes: Stripes | None = None\n"),
        ],
        {"stripes": {"images": 30}},
    ),
    "stage": (
        {"stage.py": "stages/count_labels.py", "stage_settings.py": "params/count_labels.py"},
        [
            (
                "dag/stages.py",
                '    "catalog": Stage(',
                '    "count_labels": Stage("darkroom.params.count_labels:Params", networks=False),\n',
            ),
            ("../../dvc.yaml", "\n  # Tokenizer:", COUNT_LABELS),
        ],
        {"count_labels": {"parts": ["stripes"]}},
    ),
    "command": (
        {"command.py": "tools/label.py"},
        [],
        {},
    ),
}
FILES = {"source": 3, "stage": 5, "command": 1}
# Nothing of these depends on what is added.
UNTOUCHED = {
    "ingest",
    "catalog",
    "train_extractor",
    "train_clip",
    "embed_clip",
    "train_scene_reader",
}
MODELS = ("tokenizer", "generator", "prior")
TARGETS = ("score_generator", "train_prior")


def add(sandbox: Sandbox, copied: dict[str, str], lines: list[tuple[str, str, str]], chosen: dict[str, Any]) -> None:
    """Copy additions to their places, insert their lines, and choose them in params.yaml."""
    source = sandbox.root / SOURCE
    for name, to in copied.items():
        if (ADDITIONS / name).is_dir():
            shutil.copytree(ADDITIONS / name, source / to, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ADDITIONS / name, source / to)
    for name, before, line in lines:
        text = (source / name).read_text()
        assert before in text, f"{name} has no {before!r} any more"
        (source / name).write_text(text.replace(before, f"{line}{before}", 1))
    sandbox.edit(chosen)


def touched(sandbox: Sandbox) -> set[str]:
    """Return the files and new folders of the source and of the DAG that differ from the commit."""
    tracked = ("src", "params.yaml", "dvc.yaml", "workflow")
    return {line[3:] for line in sandbox.run("git", "status", "--porcelain", "--", *tracked).splitlines()}


@pytest.fixture
def added(fresh: Sandbox) -> Sandbox:
    """A copy of the tiny DAG with the additions, which have not run."""
    add(fresh, COPIED, LINES, CHOSEN)
    return fresh


def test_they_train_sample_and_score(added: Sandbox) -> None:
    ran = added.ran(*ENGINES["snakemake"], *TARGETS)
    assert {"train_tokenizer", "train_generator", "sample_generator", *TARGETS} <= set(ran)
    assert len(ran) == len(set(ran)) and not UNTOUCHED & {name.partition("@")[0] for name in ran}
    scores = json.loads((added.root / "metrics/generator.json").read_text())
    assert scores["fd"] > 0 and 0 <= scores["brightness"] <= 255 and scores["spread"] > 0
    manifests = {name: json.loads((added.root / f"models/{name}/manifest.json").read_text()) for name in MODELS}
    assert manifests["tokenizer"]["tokenizer_kind"] == "patches"
    assert manifests["generator"]["generator_kind"] == "normal"
    assert manifests["prior"]["objective"] == "arc"
    assert added.stale(*TARGETS) == set()


def test_a_source_a_stage_and_a_command_run(fresh: Sandbox) -> None:
    parts = yaml.safe_load((fresh.root / "params.yaml").read_text())["parts"]
    fresh.edit({"parts": {**parts, "stripes": {**parts["first"], "source": "stripes", "start": 0, "stop": 30}}})
    files = {}
    for name, (copied, lines, chosen) in SMALL.items():
        add(fresh, copied, lines, chosen)
        edited = {str(SOURCE / path) for path in [*copied.values(), *(path for path, _, _ in lines)]}
        files[name] = edited | ({"params.yaml"} if chosen else set())
    assert {name: len(paths) for name, paths in files.items()} == FILES
    assert touched(fresh) == {path.replace("src/darkroom/../../", "") for path in set().union(*files.values())}
    assert set(fresh.ran("dvc", "repro", "count_labels")) == {"ingest@stripes", "count_labels"}
    counted = json.loads((fresh.root / "samples/labels/labels.json").read_text())
    assert set(counted) == {"horizontal", "vertical"} and 0 < sum(counted.values()) < 30
    assert fresh.darkroom("label", "vertical") == f"{counted['vertical']} images\n"


@pytest.mark.slow
def test_the_whole_dag_runs_with_them(added: Sandbox) -> None:
    ran = added.ran(*ENGINES["snakemake"])
    assert len(ran) == len(set(ran)) and not UNTOUCHED & {name.partition("@")[0] for name in ran}
    for name in ("generator", "decoder", "text"):
        assert "brightness" in json.loads((added.root / f"metrics/{name}.json").read_text())
    assert "grey" in (added.root / "reports/index.html").read_text()
    added.assert_nothing_to_do()
