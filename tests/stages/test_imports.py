"""A stage imports what it uses: benchmarks/starts.py prints the seconds, and here is what must not come back."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from darkroom.artifacts.manifest import read_manifest, write_manifest
from darkroom.dag.stages import STAGES
from darkroom.data.catalog_writer import write_catalog
from data.making import make_part
from helpers import DIGITS

ROOT = Path(__file__).resolve().parents[2]

# Packages whose import takes 50 ms of CPU or more, by themselves or with what they bring.
HEAVY = (
    "torch",
    "torch._dynamo",
    "torch.distributed.tensor",
    "accelerate",
    "clip",
    "datasets",
    "diffusers",
    "dvclive",
    "matplotlib",
    "networkx",
    "pandas",
    "scipy",
    "sklearn",
    "sympy",
    "torch_fidelity",
    "torchmetrics",
    "torchvision",
    "transformers",
    "triton",
    "vector_quantize_pytorch",
    "webdataset",
    "x_transformers",
)
# Accelerate shares a training among processes; DTensor is what a shard is; sympy comes with it.
TRAINS = {"torch", "torch.distributed.tensor", "accelerate", "sympy"}
# What each stage may import before its body decides what to do.
ALLOWED: dict[str, set[str]] = {
    "train_tokenizer": TRAINS,
    "train_extractor": TRAINS,
    "score_tokenizer": {"torch"},
    "encode_latents": {"torch"},
    "reference_stats": {"torch"},
}


# Each stage in a fork of one process, which imports torch itself when all stages that are left may.
IMPORTS = """
import importlib, json, os, sys
import darkroom.runner
heavy, stages, torches = map(json.loads, sys.argv[1:])
found = {}
for stage in sorted(stages, key=torches.__contains__):
    if stage in torches:
        import torch
    reader, writer = os.pipe()
    if not os.fork():
        try:
            importlib.import_module(f"darkroom.stages.{stage}")
            os.write(writer, json.dumps([name for name in heavy if name in sys.modules]).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as pipe:
        found[stage] = json.loads(pipe.read() or "null")
    os.wait()
print(json.dumps(found))
"""


def test_each_heavy_package_is_one_that_is_installed_by_its_name() -> None:
    optional = {"datasets", "transformers"}
    assert all(find_spec(name.partition(".")[0]) for name in set(HEAVY) - optional)


def test_a_stage_imports_what_it_uses() -> None:
    torches = [stage for stage, allowed in ALLOWED.items() if "torch" in allowed]
    command = [sys.executable, "-c", IMPORTS, *map(json.dumps, (HEAVY, list(STAGES), torches))]
    environment = {"PYTHONPATH": str(ROOT / "src"), "PATH": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    further = {stage: set(found[stage]) - ALLOWED.get(stage, set()) for stage in STAGES}
    assert {stage: names for stage, names in further.items() if names} == {}


# Bodies of stages that have nothing to do, one after the other as in the DAG.
WORK = """
import importlib, sys
from pathlib import Path
import darkroom.runner
from darkroom.check.check import schema
from darkroom.params.section import validate
from darkroom.params.stage import cut, read_yaml
root = Path(sys.argv[1])
values, dvc = read_yaml(Path(sys.argv[2])), read_yaml(root / "dvc.yaml")
values["train_clip"]["source"] = values["train_generator"]["kind"] = "none"
values["score_decoder"]["attributes"] = "none"
values["train_decoder"]["unets"]["up"]["frozen"] = True
values["train_tokenizer"]["kl"]["perceptual"]["weight"] = 0.0
for address in sys.argv[3:]:
    stage, _, item = address.partition("@")
    params = validate(schema(stage), cut(stage, item or None, values, dvc))
    importlib.import_module(f"darkroom.stages.{stage}").run(params, *filter(None, [item]))
    heavy = {"torch", "dvclive", "pandas"} & set(sys.modules)
    assert not heavy, f"{address}, which has nothing to do, imports {sorted(heavy)}"
"""
IDLE = (
    "train_teacher",
    "train_scene_reader",
    "train_generator",
    "sample_generator",
    "score_generator",
    "train_classifier",
    "train_distilled",
    "train_clip",
    "embed_clip@first",
    "train_decoder@base",
    "train_decoder@up",
    "train_prior",
    "sample_decoder",
    "sample_text",
    "score_decoder",
    "score_text",
    "sample_tokenizer",
    "score_tokenizer_samples",
)


EMPTIED = ("generator", "decoder", "text", "tokenizer_samples")


def test_what_has_nothing_to_do_decides_so_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_part(Path("data/shards"), "first", 0, 20)
    Path("data/catalog").mkdir()
    write_catalog(Path("data/catalog"), ["first"])
    for folder in ("models/tokenizer", "metrics", "cards"):
        Path(folder).mkdir(parents=True)
    write_manifest(Path("models/tokenizer"), "tokenizer", tokenizer_kind="kl", files={})
    for name in EMPTIED:
        Path(f"metrics/{name}.json").write_text('{"fd": 1.0}')  # of an earlier run
    command = [sys.executable, "-c", WORK, str(ROOT), str(DIGITS), *IDLE]
    environment = {"PYTHONPATH": str(ROOT / "src"), "PATH": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for out in ("teacher", "scene_reader", "generator", "classifier", "decoder/base", "prior"):
        assert read_manifest(Path("models") / out, out.partition("/")[0])["trained"] is False
    for name in EMPTIED:
        assert json.loads(Path(f"metrics/{name}.json").read_text()) == {}
        assert json.loads(Path(f"cards/{name}.json").read_text()) == {}
    samples = read_manifest(Path("samples/tokenizer"), "samples")
    assert (samples["images"], samples["tokenizer_kind"]) == (0, "kl")
