"""Two nodes work in one folder: stages end at the same time and are killed, and no record is lost, cut or removed.

A node is a process with PIDs, a host name and a /var/tmp of its own, as two machines with a shared folder have.
"""

import hashlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

NAMESPACES = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--uts"]
DVC = [sys.executable, "-m", "darkroom.dag.dvc"]
# The entry of the stage in `rwlock` must still be there when its body ends.
BODY = "sleep 0.{n} && grep -q /{name} .dvc/tmp/rwlock && date +%N > {name}"


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if "had been killed" in line or "Error" in line]


def work(name: str, ends: int, kills: float) -> None:
    """Run stages on this node until so many have ended; the fraction `kills` of the attempts is killed."""
    socket.sethostname(name)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/var/tmp"], check=True)
    draw = random.Random(name)
    while ends:
        stage = draw.choice([f"{name}{n}" for n in range(4)] + ["both"])
        command = [*DVC, "repro", "--single-item", "--force", stage]
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        run = subprocess.Popen(command, start_new_session=True, **output)
        if draw.random() < kills:
            time.sleep(draw.uniform(0, 2))
            os.killpg(run.pid, signal.SIGKILL)
        text, _ = run.communicate(timeout=120)
        if run.returncode != -signal.SIGKILL:
            assert run.returncode == 0 and not _lines(text), text
            ends -= 1
            if stage != "both":  # nobody else makes it
                recorded = yaml.safe_load(Path("dvc.lock").read_text())["stages"][stage]["outs"][0]["md5"]
                assert recorded == hashlib.md5(Path(stage).read_bytes()).hexdigest(), stage


@pytest.mark.parametrize(
    ("ends", "kills"), [(3, 0.3), pytest.param(100, 0.3, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_two_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: int, kills: float) -> None:
    if subprocess.run([*NAMESPACES, "true"], capture_output=True).returncode:
        pytest.skip("namespaces of its own need root")
    monkeypatch.chdir(tmp_path)
    for command in ("git init -q", "dvc init -q"):
        subprocess.run(command.split(), check=True)
    names = [f"{node}{n}" for node in ("one", "two") for n in range(4)] + ["both"]
    stages = {
        name: {"cmd": BODY.format(n=at, name=name), "deps": ["data"], "outs": [name]} for at, name in enumerate(names)
    }
    Path("dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
    Path("data").write_text("shared")
    monkeypatch.setenv("DARKROOM_RUN", "a run that has the turn")
    source = Path(__file__).parents[2] / "src"
    monkeypatch.setenv("PYTHONPATH", f"{source}{os.pathsep}{Path(__file__).parents[1]}")
    call = "import sys; from dag.test_nodes import work; work(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))"
    nodes = [
        subprocess.Popen([*NAMESPACES, sys.executable, "-c", call, node, str(ends), str(kills)], stderr=subprocess.PIPE)
        for node in ("one", "two")
    ]
    while any(node.poll() is None for node in nodes):  # a third machine asks for the status; files may be in use
        looked = subprocess.run([*DVC, "status"], capture_output=True, text=True)
        assert "had been killed" not in looked.stderr, looked.stderr
    assert [node.communicate()[1].decode() for node in nodes] == ["", ""]
    subprocess.run([*DVC, "repro"], check=True)
    assert set(yaml.safe_load(Path("dvc.lock").read_text())["stages"]) == set(names)
    assert "up to date" in subprocess.run([*DVC, "status"], capture_output=True, text=True, check=True).stdout
    assert json.loads(Path(".dvc/tmp/rwlock").read_text()) == {"read": {}, "write": {}}
