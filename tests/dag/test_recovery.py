"""What is lost comes back: from the cache without work, or by finishing what a killed run began."""

import os
import shutil
import signal
import subprocess
import time

import pytest

from dag.sandbox import Sandbox

ENGINES = {"dvc": ("dvc", "repro"), "snakemake": ("snakemake", "--cores", "2")}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_damaged_and_a_deleted_output_are_restored_without_work(fresh: Sandbox, engine: str) -> None:
    before = fresh.hashes()
    shard = fresh.root / "data/shards/first/train/00000.tar"
    shard.chmod(0o644)
    shard.write_bytes(b"damaged" + shard.read_bytes()[7:])
    shutil.rmtree(fresh.root / "models/tokenizer")
    (fresh.root / "metrics/dit.json").unlink()
    with fresh.bodies() as ran:
        fresh.run(*ENGINES[engine])
    assert ran == []
    assert fresh.hashes() == before
    fresh.assert_nothing_to_do()


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_the_next_run_finishes_what_a_killed_one_began(fresh: Sandbox, end: signal.Signals) -> None:
    fresh.edit({"sample_dit": {"seed": 5}})
    with fresh.bodies() as ran:
        run = subprocess.Popen(
            ENGINES["snakemake"],
            cwd=fresh.root,
            env=fresh.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        while not any(line["stage"] == "score_dit" for line in fresh.history()[-1:]):
            assert run.poll() is None, "the run ended before it was killed"
            time.sleep(0.05)
        os.killpg(run.pid, end)
        run.wait(timeout=60)
    assert ran[0] == "sample_dit"
    if end == signal.SIGKILL:
        fresh.snakemake("--unlock")
    with fresh.bodies() as ran:
        fresh.snakemake()
    assert ran == ["score_dit", "report"]
    fresh.assert_nothing_to_do()
