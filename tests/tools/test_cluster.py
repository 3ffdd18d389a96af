"""The profile that `darkroom cluster` writes."""

from types import SimpleNamespace

import pytest
import yaml

from darkroom.dag.stages import STAGES
from darkroom.errors import DarkroomError
from darkroom.tools import cluster as module
from darkroom.tools.cluster import cluster, resources
from darkroom.tools.plan.table import StagePlan

ONE = dict.fromkeys(STAGES, 1)
PLANS = [
    StagePlan("ingest@first", seconds=60, memory={"images": 500_000_000}),
    StagePlan("ingest@second", seconds=1200, memory={"images": 100_000_000}),
    StagePlan(
        "train_generator", seconds=36_000, memory={"weights": 3_000_000_000, "activations": 5_000_000_000}, gpu=True
    ),
    StagePlan("train_clip", source="too large", gpu=True),
]


def test_a_rule_gets_what_its_largest_job_needs():
    assert resources(PLANS, ONE, 2.0) == {
        "ingest": {"mem_mb": 3000, "runtime": 51},
        "train_generator": {"mem_mb": 18_000, "runtime": 1211},
    }
    assert resources(PLANS, {**ONE, "train_generator": 4}, 1.0, "gpu") == {
        "ingest": {"mem_mb": 3000, "runtime": 31},
        "train_generator": {"mem_mb": 40_000, "runtime": 611, "slurm_partition": "'gpu'"},
        "train_clip": {"slurm_partition": "'gpu'"},
    }


def test_the_profile_is_the_committed_one_with_partition_account_and_resources(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "planned", lambda everything: SimpleNamespace(plans=PLANS))
    base = yaml.safe_load(module._BASES["slurm"].read_text())
    monkeypatch.setattr(module, "PROFILES", tmp_path)
    said = cluster(name="mine", partition="cpu", account="lab", per_node=8)
    written = yaml.safe_load((tmp_path / "mine" / "config.yaml").read_text())
    assert written.pop("set-resources") == resources(PLANS, ONE, 2.0)
    assert written.pop("default-resources") == [
        *base.pop("default-resources"),
        "slurm_partition='cpu'",
        "slurm_account='lab'",
    ]
    assert written.pop("config") == [*base.pop("config"), "processes_per_node=8"]
    assert written == base
    assert "train_clip" in said and "--gpu-partition" in said
    cluster(name="mine")
    assert "slurm_account" in (tmp_path / "mine" / "config.yaml.before").read_text()
    assert "slurm_account" not in (tmp_path / "mine" / "config.yaml").read_text()
    assert "train_generator" not in said


def test_a_profile_for_kubernetes_is_the_committed_one_with_resources(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "planned", lambda everything: SimpleNamespace(plans=PLANS))
    base = yaml.safe_load(module._BASES["kubernetes"].read_text())
    monkeypatch.setattr(module, "PROFILES", tmp_path)
    cluster(name="mine", kubernetes=True)
    written = yaml.safe_load((tmp_path / "mine" / "config.yaml").read_text())
    assert written == base | {"set-resources": resources(PLANS, ONE, 2.0)}
    with pytest.raises(DarkroomError, match="for Slurm"):
        cluster(name="mine", kubernetes=True, partition="cpu")


def test_a_profile_of_the_repository_stays():
    with pytest.raises(DarkroomError, match="profiles/slurm"):
        cluster(name="slurm")
