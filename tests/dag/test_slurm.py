"""Stages as jobs of a real Slurm, Debian's slurmctld, slurmd and munge, started here; skipped without them."""

import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dag.sandbox import Sandbox, wait_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
PLUGIN = "snakemake_executor_plugin_slurm"
FOUND = Path("/etc/slurm/slurm.conf")
MISSING = [name for name in PROGRAMS if shutil.which(name) is None]
MISSING += [PLUGIN] * (importlib.util.find_spec(PLUGIN) is None) + ["root"] * (os.getuid() != 0)
MISSING += [f"no {FOUND}, which is this machine's own"] * FOUND.exists()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}"),
]

CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmctldPort={ports[0]}
ReturnToService=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 RealMemory=20000 State=UNKNOWN
NodeName=other NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 RealMemory=20000 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES State=UP PriorityTier=1 GraceTime=60
PartitionName=urgent Nodes={host} State=UP PriorityTier=10
PartitionName=both Nodes=ALL State=UP PriorityTier=1 GraceTime=60
"""
# Without accounting; the test waits less for the first look at a job.
OPTIONS = ("--profile", "profiles/slurm", "--slurm-status-command", "squeue")
OPTIONS += ("--slurm-init-seconds-before-status-checks", "3")


def resources(minutes: int, seconds: int, *more: str) -> tuple[str, ...]:
    """Return the options of a limit in minutes, before whose end Slurm sends SIGTERM so many seconds."""
    return (
        "--default-resources",
        "mem_mb=2000",
        f"runtime={minutes}",
        f"slurm_extra='--signal=TERM@{seconds}'",
        *more,
        *OPTIONS,
    )


URGENT = ("--partition", "urgent", "--cpus-per-task", "2", "--output", "/dev/null", "--wrap", "sleep 3")
NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")  # of PIDs, as on another machine
STAGE, TARGET = "train_extractor", "models/extractor"
LENGTH = {"images": 120_000, "log_every": 1_600, "validate_every": 32_000}  # about 30 s


def free_ports() -> list[int]:
    with socket.socket() as one, socket.socket() as two, socket.socket() as three:
        for each in (one, two, three):
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in (one, two, three)]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Start Slurm with one node, and another with PIDs of its own; return the variables that its programs read."""
    folder = tmp_path_factory.mktemp("slurm")
    for name in ("state", "spool"):
        (folder / name).mkdir()
    (folder / "key").write_bytes(os.urandom(1024))
    (folder / "key").chmod(0o400)
    files = {
        "socket": "munge.sock",
        "pid-file": "munge.pid",
        "log-file": "munge.log",
        "seed-file": "seed",
        "key-file": "key",
    }
    subprocess.run(["munged", "--force", *(f"--{name}={folder / file}" for name, file in files.items())], check=True)
    host = socket.gethostname().partition(".")[0]
    (folder / "slurm.conf").write_text(CONF.format(folder=folder, host=host, ports=free_ports()))
    variables = {"SLURM_CONF": str(folder / "slurm.conf")}
    environment = os.environ | variables

    def ready() -> bool:
        command = ["sinfo", "--noheader", "--Node", "--partition", "both", "--format", "%T"]
        return subprocess.run(command, env=environment, capture_output=True, text=True).stdout.split() == ["idle"] * 2

    other = None

    try:
        for program in ("slurmctld", f"slurmd -N {host}"):
            subprocess.run(program.split(), check=True, env=environment)
        other = subprocess.Popen([*NAMESPACE, "slurmd", "-D", "-N", "other"], env=environment)
        wait_until(ready, 30, lambda: (folder / "slurmctld.log").read_text()[-2000:])
        FOUND.parent.mkdir(exist_ok=True)
        FOUND.symlink_to(folder / "slurm.conf")  # inside a job the plugin does not pass SLURM_CONF on
        yield variables
    finally:
        FOUND.unlink(missing_ok=True)
        subprocess.run(["scontrol", "shutdown"], env=environment)
        if other is not None:
            other.kill()
            other.wait()
        os.kill(int((folder / "munge.pid").read_text()), signal.SIGTERM)


def on(slurm: dict[str, str], sandbox: Sandbox, home: Path) -> Sandbox:
    """Return the sandbox with programs that find Slurm, and a HOME: Snakemake inside a job writes there."""
    home.mkdir()
    sandbox.environment |= {**slurm, "HOME": str(home)}
    return sandbox


@pytest.fixture
def clone(slurm: dict[str, str], tmp_path: Path) -> Sandbox:
    """Return a clone with the tiny DAG whose programs find Slurm."""
    return on(slurm, Sandbox.clone(tmp_path / "clone"), tmp_path / "home")


@pytest.fixture
def training(fresh: Sandbox, slurm: dict[str, str], tmp_path: Path) -> Sandbox:
    """Return a clone in which a training of some seconds is to run, with no checkpoint unless it is stopped."""
    fresh.edit({"run": {"max_lost_seconds": 1_000_000}, STAGE: {"training": LENGTH}})
    (fresh.root / f"logs/{STAGE}.log").unlink()
    return on(slurm, fresh, tmp_path / "home")


@pytest.fixture(scope="module")
def trained(committed: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the hashes of the same training without Slurm, undisturbed."""
    local = committed.copy(tmp_path_factory.mktemp("local") / "clone")
    local.edit({"run": {"max_lost_seconds": 1_000_000}, STAGE: {"training": LENGTH}})
    local.snakemake(TARGET)
    return local.hashes(STAGE)


def starts(clone: Sandbox) -> int:
    return sum(line["stage"] == STAGE and line["event"] == "start" for line in clone.history())


def test_the_small_dag_gives_the_same_bytes(clone: Sandbox, committed: Sandbox) -> None:
    said = clone.run("snakemake", *resources(30, 300))
    assert clone.lock() == committed.lock()
    clone.assert_nothing_to_do()
    submitted = set(re.findall(r"slurm_logs/rule_(\w+)/", said))
    assert {"ingest", "train_generator"} <= submitted and not {"report", "train_distilled"} & submitted


def test_a_preempted_training_continues(training: Sandbox, trained: dict[str, str]) -> None:
    with training.start("snakemake", *resources(30, 300), TARGET):
        wait_until(lambda: "images/s" in training.log(STAGE))
        training.run("sbatch", *URGENT)
        wait_until(lambda: "stopped at image" in training.log(STAGE))
    assert training.hashes(STAGE) == trained and "resumes at image" in training.log(STAGE) and starts(training) == 3


def test_a_training_that_runs_out_of_time_continues(training: Sandbox, trained: dict[str, str]) -> None:
    training.run("snakemake", *resources(1, 30), TARGET)
    assert training.hashes(STAGE) == trained and "resumes at image" in training.log(STAGE)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_the_main_process_is_stopped(training: Sandbox, trained: dict[str, str], number: signal.Signals) -> None:
    """SIGTERM and Ctrl-C stop the training with a checkpoint; after SIGKILL it goes on, and the next run waits."""
    with training.start("snakemake", *resources(30, 300), TARGET) as run:
        wait_until(lambda: "images/s" in training.log(STAGE))
        run.send_signal(number)
        if number != signal.SIGKILL:
            wait_until(lambda: "stopped at image" in training.log(STAGE), 60)
    training.run("snakemake", "--unlock")
    training.run("snakemake", *resources(30, 300), TARGET)
    assert training.hashes(STAGE) == trained
    assert starts(training) == (2 if number == signal.SIGKILL else 3), "one of them before the copy"


def test_a_training_on_two_nodes_has_the_weights_of_two_processes(training: Sandbox, tmp_path: Path) -> None:
    training.edit({STAGE: {"training": {"processes": 2}}})
    local = training.copy(tmp_path / "local")
    local.snakemake(TARGET)
    training.environment |= {"GLOO_SOCKET_IFNAME": "lo", "MASTER_ADDR": "127.0.0.1"}
    config = ("--config", "cluster=true", "processes_per_node=1")
    with training.start("snakemake", *resources(30, 300, "slurm_partition=both"), *config, "--", TARGET):
        wait_until(lambda: "images/s" in training.log(STAGE))
        steps = training.run("squeue", "--steps", "--noheader", "--format=%N")
        assert any("," in nodes for nodes in steps.split()), steps
        training.run("sbatch", *URGENT)
        wait_until(lambda: "stopped at image" in training.log(STAGE))
    assert training.hashes(STAGE) == local.hashes(STAGE)
    assert "resumes at image" in training.log(STAGE) and starts(training) == 3


def test_a_sweep_gives_the_same_bytes(fresh: Sandbox, slurm: dict[str, str], tmp_path: Path) -> None:
    command = ("sweep", "s", "-S", "sample_generator.dit.guidance=1,2")
    local = fresh.copy(tmp_path / "local")
    local.darkroom(*command)
    profile = fresh.root / "profiles/slurm/config.yaml"
    options = dict(zip(OPTIONS[2::2], OPTIONS[3::2], strict=True))
    lines = [f"{name.removeprefix('--')}: {value}" for name, value in options.items()]
    profile.write_text(profile.read_text().replace("mem_mb=8000", "mem_mb=2000") + "\n".join(lines))
    remote = on(slurm, fresh, tmp_path / "home")
    said = remote.darkroom(*command, "--profile", "profiles/slurm")
    assert "s-1_sample_generator" in "".join(re.findall(r"slurm_logs/rule_\S+", said))
    points = [".darkroom/sweeps/s/s-1/dvc.lock", ".darkroom/sweeps/s/s-2/dvc.lock"]
    assert all((local.root / point).read_text() == (remote.root / point).read_text() for point in points)
