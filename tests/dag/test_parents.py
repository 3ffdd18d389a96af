"""Parents fork the processes of a run: a child is like a new process, and no process is left behind."""

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from dag.sandbox import wait_until
from darkroom.dag import dvc, parents

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no parents are started"),
    pytest.mark.timeout(60),
]

ENGINE = """
import json, os, sys
from darkroom.dag import dvc, parents
parents.start(sys.argv[1:])
for line in sys.stdin:
    kind, words, threads, extra = json.loads(line)
    answer = parents.ask(kind, words, os.environ | extra, threads)
    os.write(1, f"answer {answer}\\n".encode())  # in one piece: children write to the same pipe
"""
# A module that stands for the program of a child.
CHILD = """
import json, os, signal, sys, time
def main():
    if "wait" in sys.argv:
        signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b"stopped\\n"), os._exit(7)))
        print("waits", os.getpid(), os.getppid(), flush=True)
        time.sleep(60)
    if "kill" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    if "raise" in sys.argv:
        raise ValueError("no good")
    if "refuse" in sys.argv:
        sys.exit("refused")
    if "edited" in sys.argv:
        loaded = "darkroom.runner" in sys.modules
        import darkroom.errors
        print(json.dumps([loaded, getattr(darkroom.errors, "EDITED", None)]))
        return
    if "threads" in sys.argv:
        import sklearn.metrics, threadpoolctl, torch
        torch.set_num_threads(int(os.environ["COUNT"]))  # as each stage with networks does
        print([(each["filepath"], each["num_threads"]) for each in threadpoolctl.threadpool_info()])
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
    fresh = [signal.getsignal(each) in (signal.SIG_DFL, signal.default_int_handler) for each in numbers]
    names = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd") if int(name) > 2]
    files = [os.readlink(name) for name in names if os.path.exists(name)]
    print(json.dumps({
        "words": sys.argv, "folder": os.getcwd(), "value": os.environ.get("VALUE"), "files": files,
        "command": open("/proc/self/cmdline").read().rstrip(chr(0)).split(chr(0)), "fresh": fresh,
        "threads": os.environ.get("OMP_NUM_THREADS"), "torch": "torch" in sys.modules,
    }))
    return 3
"""


@pytest.fixture
def engine(request, tmp_path):
    """Return a process that starts parents and asks them, in a folder with a program of its own."""
    shutil.copytree(Path(parents.__file__).parents[1], tmp_path / "src/darkroom")
    (tmp_path / "program.py").write_text(CHILD)
    environment = os.environ | {"PYTHONPATH": f"{tmp_path / 'src'}:{tmp_path}"}
    for name in (parents.NAME, "OMP_NUM_THREADS"):
        environment.pop(name, None)
    with subprocess.Popen(
        [sys.executable, "-c", ENGINE, getattr(request, "param", "light")],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        yield process
        process.kill()


def request(engine, kind, *words, threads=1, **extra):
    """Send a request."""
    engine.stdin.write(json.dumps([kind, ["program", *words], threads, extra]) + "\n")
    engine.stdin.flush()


def read(engine, word):
    """Return the next line that begins with a word; what stands before it is in the error of the test that fails."""
    lines = []
    for line in engine.stdout:
        lines.append(line)
        if line.startswith(word):
            return line.strip()
    pytest.fail("".join(lines))


def below(engine):
    """Return all processes that an engine has started."""
    return psutil.Process(engine.pid).children(recursive=True)


def test_a_child_is_like_a_new_process(engine, tmp_path):
    request(engine, "light", "some", "words", VALUE="5")
    said = json.loads(read(engine, "{"))
    assert read(engine, "answer") == "answer 3"
    assert said["words"] == ["program", "some", "words"] and said["value"] == "5"
    assert said["folder"] == str(tmp_path) and said["threads"] is None, "the child has the environment of who asks"
    assert said["command"][1:] == ["-m", "program", "some", "words"]
    assert all(said["fresh"])
    assert not [file for file in said["files"] if "socket" in file or "pipe" in file or "eventpoll" in file]


def test_an_edit_reaches_the_next_child(engine, tmp_path):
    """A child has the modules of its parent, as long as none of their files was edited."""

    def child():
        request(engine, "light", "edited")
        return json.loads(read(engine, "["))

    assert child() == [True, None] == child()
    (tmp_path / "src/darkroom/.#errors.py").symlink_to("somebody@host.1")  # as Emacs does
    assert child() == [True, None]
    with (tmp_path / "src/darkroom/errors.py").open("a") as file:
        file.write("EDITED = True\n")
    assert child() == [False, True] == child()


@pytest.mark.timeout(180)  # the libraries are imported three times
@pytest.mark.parametrize("engine", ["networks"], indirect=True)
def test_libraries_are_loaded_and_use_the_threads_of_a_new_process(engine, tmp_path):
    request(engine, "networks")
    assert json.loads(read(engine, "{"))["torch"] and read(engine, "answer") == "answer 3"
    for count in (2, 1 + len(os.sched_getaffinity(0))):  # OpenBLAS uses no more threads than cores
        request(engine, "networks", "threads", threads=count, COUNT=str(count))
        forked = read(engine, "[")
        own = {f"{name}_NUM_THREADS": str(count) for name in ("OMP", "OPENBLAS", "MKL")} | {"COUNT": str(count)}
        command = [sys.executable, "-c", "import program; program.main()", "threads"]
        new = subprocess.run(command, cwd=tmp_path, env=os.environ | own, capture_output=True, text=True, check=True)
        assert sorted(ast.literal_eval(forked)) == sorted(ast.literal_eval(new.stdout))


def test_dvc_starts_a_parent_for_the_second_stage_with_networks(monkeypatch):
    started = []
    monkeypatch.setattr(parents, "start", started.extend)
    monkeypatch.delenv(parents.NAME, raising=False)
    monkeypatch.setattr(dvc, "_requested", [])
    monkeypatch.setattr(dvc, "stage_params", lambda stage, item: {})
    for stage, kinds in (("report", []), ("train_clip", []), ("catalog", []), ("embed_clip", ["networks"])):
        assert dvc._ask(f"{dvc._BODY}{stage}", {"DVC_STAGE": stage}) is None and started == kinds, stage


def test_the_exit_status_is_that_of_the_child_and_none_where_there_are_no_parents(engine):
    for how, answer in (("kill", "-9"), ("raise", "1"), ("refuse", "1")):
        request(engine, "light", how)
        assert read(engine, "answer") == f"answer {answer}"
    request(engine, "2")
    assert read(engine, "answer") == "answer None"


def ended(process):
    """Return whether a process has ended; it may end between two questions."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_child_is_told_to_stop_when_its_engine_is_gone(engine):
    request(engine, "light", "wait")
    child = psutil.Process(int(read(engine, "waits").split()[1]))
    others = below(engine)
    engine.kill()
    assert read(engine, "stopped") == "stopped"
    wait_until(lambda: all(map(ended, [child, *others])), 10)


def test_a_child_is_told_to_stop_when_its_parent_is_gone(engine):
    request(engine, "light", "wait")
    _, child, parent = read(engine, "waits").split()
    process = psutil.Process(int(child))
    os.kill(int(parent), signal.SIGKILL)
    assert read(engine, "answer") == "answer -9"
    wait_until(lambda: ended(process), 10)
    request(engine, "light")
    assert read(engine, "answer") == "answer None"


def test_ctrl_c_and_sigterm_leave_the_parent_to_its_children(engine):
    request(engine, "light", "wait")
    _, child, parent = read(engine, "waits").split()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(int(parent), number)
    time.sleep(0.2)
    os.kill(int(child), signal.SIGTERM)
    assert read(engine, "answer") == "answer 7"
