"""The Snakefile is thin: a rule a stage, by name, and nothing that dvc.yaml says already."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DVC = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
CODE = DVC.pop("code")  # it runs when the Snakefile is read


def dry_run(folder: Path, gpus: str, *options: str) -> str:
    """Return what `snakemake --dry-run` prints, were everything to be made, where `nvidia-smi` lists these GPUs."""
    (program := folder / "nvidia-smi").write_text(f"#!/bin/sh\necho '{gpus}'\n")
    program.chmod(0o755)
    folders = [str(folder), str(Path(sys.executable).parent), os.environ["PATH"]]
    command = ["snakemake", "--dry-run", "--forceall", "--printshellcmds", "--cores", "2", "--nolock", *options]
    environment = os.environ | {"PATH": os.pathsep.join(folders)}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def without_gpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What `snakemake --dry-run` prints on a machine without GPUs."""
    return dry_run(tmp_path_factory.mktemp("none"), "")


@pytest.fixture(scope="module")
def jobs(without_gpus: str) -> dict[str, str]:
    """What this says of each rule."""
    texts = re.split(r"\n(?:local)?rule ", without_gpus)
    found: dict[str, str] = {}
    for text in texts[1:]:
        name = text.partition(":")[0]
        found[name] = found.get(name, "") + text
    return found


def test_every_stage_has_a_rule_of_its_name_and_the_reverse(jobs: dict[str, str]) -> None:
    assert set(jobs) - {"all", "stale"} == set(DVC)


@pytest.mark.parametrize("name", ["ingest", "train_decoder", "report"])  # for a part, for a network, once
def test_a_rule_runs_its_own_stage(jobs: dict[str, str], name: str) -> None:
    items = re.findall(r"wildcards: item=(\S+)", jobs[name])
    assert bool(items) == ("foreach" in DVC[name])
    for item in items or [None]:
        stage, log = (name, name) if item is None else (f"{name}@{item}", f"{name}-{item}")
        command = f"DARKROOM_NODES=1 PYTHONPATH=src python -S -m darkroom.dag.parents reproduce {stage}"
        assert f"Shell command: {command}\n" in jobs[name]
        assert f"log: logs/{log}.log" in jobs[name] and f"benchmark: logs/timing/{log}.tsv" in jobs[name]


def test_all_markers_are_made_before_a_stage_begins(jobs: dict[str, str]) -> None:
    """Else a stage whose marker is there takes a core before one that is to go first."""
    priorities = {name: int((re.search(r"priority: (\d+)", text) or [0, 0])[1]) for name, text in jobs.items()}
    stale = re.search(r"^rule stale:\n(?:    .*\n)+", (ROOT / "Snakefile").read_text(), re.MULTILINE)
    assert stale is not None
    highest = max(priority for name, priority in priorities.items() if name != "stale")
    assert "priority: 10**9" in stale[0] and 10**9 > highest > 0


def test_the_longest_chain_goes_first(jobs: dict[str, str]) -> None:
    priorities = {name: int((re.search(r"priority: (\d+)", text) or [0, 0])[1]) for name, text in jobs.items()}
    way = ["ingest", "train_tokenizer", "encode_latents", "train_distilled", "sample_generator"]
    found = [priorities[name] for name in way]
    assert found == sorted(found, reverse=True) and found[0] > found[1] > found[-1] > 0
    assert priorities["train_tokenizer"] > priorities["train_generator"]


# All that is asked of the class `Stages`, in one process: to import Snakemake takes longer.
PROGRAM = """
import json
from pathlib import Path
from types import SimpleNamespace
import stages
from darkroom.params.section import PARAMS
from darkroom.params.stage import DVC, items, read_yaml
from snakemake.exceptions import WorkflowError

stages.RUNS = Path("none")
params, dvc, here = read_yaml(PARAMS), read_yaml(DVC), stages.Stages(ask=False)
outs = {out.format(item=item) for name in dvc["stages"] if name != "code" for out in here.outputs(name)
        for item in items(params, dvc, name)}

cluster = stages.Stages(ask=False, cluster=True, per_node=8)
asked = {name: [cluster.gpu(name), cluster.is_local(name)] for name in cluster.names}
nodes = []
for count in (16, 8, 15):
    cluster._params["train_generator"]["training"] |= {"processes": count, "threads": 2}
    try:
        nodes.append(cluster.nodes("train_generator"))
    except WorkflowError as error:
        nodes.append(str(error))

here.expected |= {"train_decoder@base": 28.4, "train_decoder@up": 15}
jobs = [(name, {}) for name in ("train_tokenizer", "train_generator", "sample_generator", "train_distilled", "report")]
jobs += [("train_decoder", {"item": item}) for item in ("base", "up")]
seconds = [here.seconds(name)(wildcards) for name, wildcards in jobs]
stages._parameters = lambda name: SimpleNamespace(
    train_decoder=SimpleNamespace(training_of=lambda item: SimpleNamespace(images=12800))
)
seconds.append(stages._guess("train_decoder@base"))
answers = {"declared": sorted(outs), "outputs": here.all, "asked": asked, "nodes": nodes, "seconds": seconds}
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    """What this program prints."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT / 'workflow'}"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_seconds_are_of_each_job_and_guessed_by_kind_and_images_without_a_history(answers: dict[str, Any]) -> None:
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    trained = [params[stage]["training"]["images"] for stage in ("train_tokenizer", "train_generator")]
    first = [trained[0] / 50, trained[1] / 400, params["sample_generator"]["common"]["images"] / 20]
    assert answers["seconds"] == [*map(round, first), 2, 5, 28, 15, 64]


def test_the_profile_says_what_the_bridge_needs() -> None:
    profile = yaml.safe_load((ROOT / "profiles/default/config.yaml").read_text())
    assert profile["rerun-triggers"] == ["mtime"]
    assert profile["forcerun"] == ["stale"]
    assert profile["rerun-incomplete"] is True


def test_snakemake_and_dvc_declare_the_same_outputs(answers: dict[str, Any]) -> None:
    assert answers["declared"] == answers["outputs"]


def resource(text: str, rule: str, name: str) -> int:
    """Return a resource of a rule; 0 if it has none."""
    found = re.search(rf"rule {rule}:\n(?:    .*\n)*?    resources: .*\b{name}=(\d+)", text)
    return int(found[1]) if found else 0


def test_on_a_cluster_stages_with_networks_ask_for_gpus_and_the_small_ones_stay_here(
    answers: dict[str, Any], tmp_path: Path
) -> None:
    asked = {name: tuple(values) for name, values in answers["asked"].items()}
    assert {asked[name] for name in ("train_tokenizer", "train_generator", "sample_generator")} == {(1, False)}
    assert {asked[name] for name in ("catalog", "report", "train_distilled")} == {(0, True)}, "the last has no kind"
    assert asked["ingest"] == (0, False)
    assert resource(dry_run(tmp_path, "", "--config", "cluster=true"), "train_generator", "gpu") == 1


def test_processes_of_several_nodes_are_spread_evenly(answers: dict[str, Any]) -> None:
    sixteen, eight, fifteen = answers["nodes"]
    assert sixteen == {"mpi": "srun", "nodes": 2, "tasks": 2, "tasks_per_gpu": 0, "cpus_per_task": 16}
    assert eight == {}
    assert "15 processes cannot be spread over 2 nodes" in fifteen


def test_on_one_machine_a_stage_asks_for_a_gpu_where_there_is_one(without_gpus: str, tmp_path: Path) -> None:
    assert resource(without_gpus, "train_generator", "gpu") == 0
    listed = dry_run(tmp_path, "GPU 0: NVIDIA H100 (UUID: GPU-1)")
    assert resource(listed, "train_generator", "gpu") == 1
