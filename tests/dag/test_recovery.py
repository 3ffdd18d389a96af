"""What is lost comes back: from the cache without work, or by finishing what a killed run began."""

import os
import shutil
import signal
import time
from concurrent.futures import Future
from functools import partial

import psutil
import pytest

from dag.long_training import LONG, TRAIN, checkpoints, resumed_at, told, wait_until
from dag.sandbox import ENGINES, Sandbox, side_by_side

Stories = dict[str, Future]
ENDS = (signal.SIGTERM, signal.SIGKILL)


@pytest.fixture(scope="module")
def stories(committed: Sandbox, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Stories:
    """What becomes of the copies that the tests of this run ask for, to which something happens, two at a time."""
    told = {f"restored by {engine}": partial(restore, engine=engine) for engine in ENGINES}
    asked = {item.name for item in request.session.items}
    ends = [end for end in ENDS if any(name.endswith(f"[{end.name}]") for name in asked)]
    told |= {f"killed by {end.name}": partial(kill, end=end) for end in ends}
    told |= {"disturbed": disturb, "undisturbed": leave}
    copies = {name: committed.copy(tmp_path_factory.mktemp("recovery") / "a clone with spaces") for name in told}
    return side_by_side({name: partial(tell, copies[name]) for name, tell in told.items()})


def restore(sandbox: Sandbox, engine: str) -> tuple[Sandbox, list[str]]:
    """Damage one output and delete two, run everything, and return the bodies that ran."""
    latents = sandbox.root / "data/latents/first/train/00000.safetensors"
    latents.chmod(0o644)
    latents.write_bytes(b"damaged" + latents.read_bytes()[7:])
    shutil.rmtree(sandbox.root / "models/generator")
    (sandbox.root / "metrics/generator.json").unlink()
    with sandbox.bodies() as ran:
        sandbox.run(*ENGINES[engine])
    return sandbox, ran


@pytest.mark.parametrize("engine", ENGINES)
def test_a_damaged_and_a_deleted_output_are_restored_without_work(
    stories: Stories, committed: Sandbox, engine: str
) -> None:
    sandbox, ran = stories[f"restored by {engine}"].result()
    assert ran == []
    assert sandbox.hashes() == committed.hashes()
    sandbox.assert_nothing_to_do()


def kill(sandbox: Sandbox, end: signal.Signals) -> tuple[Sandbox, list[str], list[str]]:
    """Kill Snakemake and all that it started in the second of three stages, and run it again."""
    sandbox.edit({"sample_generator": {"common": {"seed": 5}}})
    with sandbox.bodies() as before, sandbox.start(*ENGINES["snakemake"]) as run:
        wait_until(lambda: sandbox.history()[-1]["stage"] == "score_generator", run)
        os.killpg(run.pid, end)
    if end == signal.SIGKILL:
        sandbox.snakemake("--unlock")
    with sandbox.bodies() as after:
        sandbox.snakemake()
    return sandbox, before, after


@pytest.mark.parametrize("end", [pytest.param("SIGTERM", marks=pytest.mark.slow), "SIGKILL"])
def test_the_next_run_finishes_what_a_killed_one_began(stories: Stories, end: str) -> None:
    sandbox, before, after = stories[f"killed by {end}"].result()
    assert before == ["sample_generator", "score_generator"]
    assert after == ["score_generator", "report"]
    sandbox.assert_nothing_to_do()


def leave(sandbox: Sandbox) -> Sandbox:
    """Train the extractor for long, undisturbed."""
    sandbox.edit(LONG)
    sandbox.run(*TRAIN)
    return sandbox


def alive(process: psutil.Process) -> bool:
    """Return whether a process goes on; one that nobody waited for does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def disturb(sandbox: Sandbox) -> tuple[Sandbox, list[list[str]], list[str]]:
    """Stop the engine of a training, then kill both, then let it end; return the bodies and the log of each run."""
    sandbox.edit(LONG)
    (sandbox.root / "logs/train_extractor.log").unlink()
    bodies, logs = [], []

    with sandbox.bodies() as ran, sandbox.start(*TRAIN) as run:
        wait_until(lambda: "images/s" in told(sandbox), run)
        stage = psutil.Process(run.pid).children(recursive=True)
        run.terminate()  # DVC alone: what it started must see that it is gone
        deadline = time.monotonic() + 10
        while any(alive(process) for process in stage):
            assert time.monotonic() < deadline, "the stage goes on without its engine"
            time.sleep(0.1)
    bodies.append(ran)
    logs.append(told(sandbox))
    left = checkpoints(sandbox)
    assert left, "no checkpoint"

    with sandbox.bodies() as ran, sandbox.start(*TRAIN) as run:
        wait_until(lambda: bool(checkpoints(sandbox) - left), run)
        os.killpg(run.pid, signal.SIGKILL)
    bodies.append(ran)
    logs.append(told(sandbox))

    with sandbox.bodies() as ran:
        sandbox.run(*TRAIN)
    return sandbox, [*bodies, ran], [*logs, told(sandbox)]


def test_a_training_stops_with_its_engine_and_continues_after_any_kill(stories: Stories) -> None:
    sandbox, bodies, logs = stories["disturbed"].result()
    assert bodies == [["catalog", "train_extractor"], ["train_extractor"], ["train_extractor"]]
    assert "stopped at image" in logs[0]
    begun = [resumed_at(log) for log in logs]
    assert 0 == begun[0] < begun[1] < begun[2], "each run goes on from the newest checkpoint of the one before"
    assert sandbox.stale("train_extractor") == set()


def test_a_training_killed_twice_ends_as_an_undisturbed_one(stories: Stories, committed: Sandbox) -> None:
    disturbed, undisturbed = stories["disturbed"].result()[0], stories["undisturbed"].result()
    assert disturbed.hashes() == undisturbed.hashes()
    made = disturbed.hashes("train_extractor")
    assert made.keys() == committed.hashes("train_extractor").keys()
    assert made["models/extractor/manifest.json"] != committed.hashes()["models/extractor/manifest.json"]
