"""The Snakefile is thin: a rule a stage, by name, and nothing that dvc.yaml says already."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DVC = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
CODE = DVC.pop("code")  # it runs when the Snakefile is read


@pytest.fixture(scope="module")
def jobs() -> dict[str, str]:
    """What `snakemake --dry-run` says of each rule, were everything to be made."""
    beside = Path(sys.executable).parent  # of .venv, whether it is on the PATH or not
    environment = os.environ | {"PATH": f"{beside}{os.pathsep}{os.environ['PATH']}"}
    command = [beside / "snakemake", "--dry-run", "--forceall", "--printshellcmds", "--cores", "2", "--nolock"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    texts = re.split(r"\n(?:local)?rule ", done.stdout + done.stderr)
    found: dict[str, str] = {}
    for text in texts[1:]:
        name = text.partition(":")[0]
        found[name] = found.get(name, "") + text
    return found


def test_every_stage_has_a_rule_of_its_name_and_the_reverse(jobs: dict[str, str]) -> None:
    assert set(jobs) - {"all", "stale"} == set(DVC)


@pytest.mark.parametrize("name", DVC)
def test_a_rule_runs_its_own_stage(jobs: dict[str, str], name: str) -> None:
    items = re.findall(r"wildcards: item=(\S+)", jobs[name])
    assert bool(items) == ("foreach" in DVC[name])
    for item in items or [None]:
        stage, log = (name, name) if item is None else (f"{name}@{item}", f"{name}-{item}")
        command = f"PYTHONPATH=src python -S -m darkroom.dag.parents reproduce {stage}"
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
    ways = [
        ["ingest", "train_tokenizer", "encode_latents", "train_distilled", "sample_generator"],
        ["ingest", "train_clip", "embed_clip", "sample_decoder"],
    ]
    for way in ways:
        found = [priorities[name] for name in way]
        assert found == sorted(found, reverse=True) and found[0] > found[1] > found[-1] > 0
    seconds = {name: int(re.search(r"seconds=(\d+)", text)[1]) for name, text in jobs.items() if name in DVC}
    assert priorities["train_clip"] > priorities["train_decoder"] > seconds["train_decoder"] > seconds["report"] == 5
    assert seconds["train_distilled"] == 5 < seconds["train_prior"] < seconds["train_generator"], "by kind and images"


def test_the_profile_says_what_the_bridge_needs() -> None:
    profile = yaml.safe_load((ROOT / "profiles/default/config.yaml").read_text())
    assert profile["rerun-triggers"] == ["mtime"]
    assert profile["forcerun"] == ["stale"]
    assert profile["rerun-incomplete"] is True


def test_snakemake_and_dvc_declare_the_same_outputs() -> None:
    program = """
import sys
sys.path[:0] = ["src", "workflow"]
from stages import Stages
from darkroom.params.section import PARAMS
from darkroom.params.stage import DVC, items, read_yaml
params, dvc, stages = read_yaml(PARAMS), read_yaml(DVC), Stages(ask=False)
found = {out.format(item=item) for name in dvc["stages"] if name != "code" for out in stages.outputs(name)
         for item in items(params, dvc, name)}
print(sorted(found) == stages.all)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "True", done.stdout + done.stderr
