"""The toy DAG through the real Kubernetes plugin and `profiles/kubernetes`; `kubelet.py` stands in for a cluster."""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dag.sandbox import Sandbox, wait_until

PLUGIN = "snakemake_executor_plugin_kubernetes"
MISSING = [PLUGIN] * (importlib.util.find_spec(PLUGIN) is None)
MISSING += ["unshare"] * (shutil.which("unshare") is None) + ["root"] * (os.getuid() != 0)
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}")

STAGE = "train_extractor"
OPTIONS = ("--profile", "profiles/kubernetes", "--set-threads", f"{STAGE}=2")
OPTIONS += ("--set-resources", f"{STAGE}:mem_mb=16000", f"{STAGE}:runtime=600")
OPTIONS += ("--seconds-between-status-checks", "1")


class Cluster:
    """A clone of the toy DAG, and the pods of its runs."""

    def __init__(self, folder: Path) -> None:
        self.clone = Sandbox.clone_toy(folder / "a clone with spaces")
        (folder / "home").mkdir()
        self.clone.environment |= {"HOME": str(folder / "home")}
        self.pods = folder / "pods"
        self.pods.mkdir()
        self.command = (sys.executable, str(Path(__file__).with_name("kubelet.py")), str(self.pods), *OPTIONS)

    @contextmanager
    def training(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run the DAG, and hold the training of its first pod at image 32 for the block."""
        with self.clone.start(*self.command) as run:
            place = self.clone.root / f".darkroom/hold/{STAGE} at 32"
            place.parent.mkdir(parents=True)
            place.touch()
            wait_until(lambda: place.with_name(f"{place.name} reached").exists() or run.poll() is not None)
            assert run.poll() is None, [log.read_text() for log in self.pods.glob("*.log")]
            yield run
            wait_until(lambda: "stopped at image 32" in self.clone.log(STAGE), 30)
            place.unlink()

    def jobs(self, stage: str) -> list[dict[str, Any]]:
        """Return the jobs of a stage, as the API server would get them."""
        sent = [json.loads(line) for line in (self.pods / "jobs.jsonl").read_text().splitlines()]
        return [each for each in sent if f" --allowed-rules {stage} " in command_of(each)]

    def terminate(self, stage: str) -> None:
        """Send SIGTERM to the first process of a stage's last pod alone, as the kubelet does."""
        parent = self.jobs(stage)[-1]["unshare"]
        os.kill(int(Path(f"/proc/{parent}/task/{parent}/children").read_text()), signal.SIGTERM)


def pod_of(sent: dict[str, Any]) -> dict[str, Any]:
    return dict(sent["job"]["spec"]["template"]["spec"])


def command_of(sent: dict[str, Any]) -> str:
    return str(pod_of(sent)["containers"][0]["args"][1])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """Return the toy DAG after a run in which the first pod of the training was preempted."""
    cluster = Cluster(tmp_path_factory.mktemp("kubernetes"))
    with cluster.training():
        cluster.terminate(STAGE)
    return cluster


def test_a_preempted_training_continues_and_the_bytes_are_those_of_a_local_run(
    cluster: Cluster, toy_made: Sandbox
) -> None:
    assert [f"--attempt {count}" in command_of(each) for count, each in enumerate(cluster.jobs(STAGE), 1)] == [True] * 2
    assert "resumes at image 32" in cluster.clone.log(STAGE)
    assert cluster.clone.lock() == toy_made.lock()
    assert cluster.clone.hashes() == toy_made.hashes()


def test_stages_with_networks_and_ingest_are_jobs_of_one_run(cluster: Cluster) -> None:
    counts = {stage: len(cluster.jobs(stage)) for stage in ("ingest", STAGE, "score_generator", "report")}
    assert counts == {"ingest": 2, STAGE: 2, "score_generator": 0, "report": 0}
    assert len({line["run"] for line in cluster.clone.history()}) == 1


def test_a_job_asks_for_memory_cores_and_gpus(cluster: Cluster) -> None:
    ingest, training = (pod_of(cluster.jobs(stage)[0]) for stage in ("ingest", STAGE))
    assert ingest["containers"][0]["resources"] == {
        "requests": {"cpu": "950m", "memory": "8000M", "ephemeral-storage": "1000M"},
        "limits": {"memory": "8000M"},
    }
    assert "tolerations" not in ingest
    assert training["containers"][0]["resources"] == {
        "requests": {"cpu": "1900m", "memory": "16000M", "ephemeral-storage": "1000M"},
        "limits": {"memory": "16000M", "nvidia.com/gpu": "1"},
    }
    assert training["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]


def test_a_job_has_a_time_limit_and_time_for_a_checkpoint(cluster: Cluster) -> None:
    limits = [pod_of(cluster.jobs(stage)[0])["activeDeadlineSeconds"] for stage in ("ingest", STAGE)]
    assert limits == [240 * 60, 600 * 60]
    sent = cluster.jobs(STAGE)[0]
    assert pod_of(sent)["terminationGracePeriodSeconds"] == 300 and pod_of(sent)["restartPolicy"] == "Never"
    spec = sent["job"]["spec"]
    assert spec["backoffLimit"] == 0 and spec["podReplacementPolicy"] == "Failed", "Snakemake starts it again"


def test_a_pod_runs_the_image_in_the_clone_on_the_volume(cluster: Cluster) -> None:
    sent = cluster.jobs(STAGE)[0]
    pod, root = pod_of(sent), cluster.clone.root
    container = pod["containers"][0]
    assert (container["image"], container["command"]) == ("darkroom:latest", ["/bin/sh"])
    assert container["workingDir"] == str(root)
    assert command_of(sent).startswith(f"exec {sys.executable} -m snakemake --snakefile '{root}/Snakefile' ")
    assert {"name": "darkroom", "persistentVolumeClaim": {"claimName": "darkroom"}} in pod["volumes"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts.items() >= {"darkroom": "/volume", "shm": "/dev/shm"}.items()
    assert (sent["namespace"], pod["serviceAccountName"]) == ("default", "darkroom")


@pytest.mark.slow
def test_a_run_that_is_stopped_deletes_its_jobs_and_the_same_command_continues(
    tmp_path: Path, toy_made: Sandbox
) -> None:
    cluster = Cluster(tmp_path)
    with cluster.training() as run:
        run.send_signal(signal.SIGTERM)
    cluster.clone.run(*cluster.command)
    assert "resumes at image 32" in cluster.clone.log(STAGE)
    assert cluster.clone.hashes() == toy_made.hashes()
