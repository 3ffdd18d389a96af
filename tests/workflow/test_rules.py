"""The Snakefile is thin: a rule a stage, by name, and nothing that dvc.yaml says already."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SMK = sorted((ROOT / "workflow/rules").glob("*.smk"))
DVC = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
CODE = DVC.pop("code")  # it runs when the Snakefile is read
TEXTS = {
    match["name"]: match["body"]
    for file in SMK
    for match in re.finditer(r"^rule (?P<name>\w+):\n(?P<body>(?:    .*\n|\n)+)", file.read_text(), re.MULTILINE)
}
ORDER = ["input", "output", "log", "benchmark", "priority", "retries", "threads", "resources", "shell"]


def test_every_stage_has_a_rule_of_its_name_and_the_reverse() -> None:
    assert set(TEXTS) == set(DVC)


@pytest.mark.parametrize("name", TEXTS)
def test_a_rule_runs_its_own_stage(name: str) -> None:
    spread = "foreach" in DVC[name]
    stage = name + ("@{wildcards.item}" if spread else "")
    shell = f"dvc --wait-for-lock repro --single-item {stage} && python workflow/in_cache.py {stage}"
    log = f"{name}-{{item}}" if spread else name
    assert re.findall(r'shell:\s+"(.*)"', TEXTS[name]) == [shell]
    assert f'stages.inputs("{name}{"@{item}" if spread else ""}")' in TEXTS[name]
    assert f'stages.outputs("{name}")' in TEXTS[name]
    assert f'"logs/{log}.log"' in TEXTS[name]
    assert f'"logs/timing/{log}.tsv"' in TEXTS[name]


@pytest.mark.parametrize("name", TEXTS)
def test_directives_stand_in_one_order(name: str) -> None:
    found = re.findall(r"^    (\w+):", TEXTS[name], re.MULTILINE)
    assert found == [directive for directive in ORDER if directive in found]


def test_all_markers_are_made_before_a_stage_begins() -> None:
    """Else a stage whose marker is there takes a core before one that is to go first."""
    stale = re.search(r"^rule stale:\n(?:    .*\n)+", (ROOT / "Snakefile").read_text(), re.MULTILINE)
    given = {name: re.search(r"priority: (\d+)", text) for name, text in {**TEXTS, "stale": stale[0]}.items()}  # type: ignore[index]
    numbers = {name: int(found[1]) if found else 0 for name, found in given.items()}
    assert all(numbers["stale"] > number for name, number in numbers.items() if name != "stale")


@pytest.mark.parametrize("file", [ROOT / "Snakefile", *SMK], ids=lambda path: path.name)
def test_no_rule_is_made_in_a_loop(file: Path) -> None:
    # `shell` and `params` are evaluated late: in a loop every rule would run the last command (snakemake#2832).
    assert not re.search(r"^\s*(for|while|if|def)\b", file.read_text(), re.MULTILINE)


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
