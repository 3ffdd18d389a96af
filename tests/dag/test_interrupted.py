"""What `dvc repro` finishes after Snakemake was interrupted is done for Snakemake, too."""

import os
import signal

from dag.long_training import wait_until
from dag.sandbox import NOTHING, Sandbox


def test_what_dvc_has_finished_is_not_run_again(fresh: Sandbox) -> None:
    fresh.edit({"train_extractor": {"training": {"seed": 3}}})
    before = len(fresh.history())
    with fresh.start("snakemake", "--cores", "2", "models/extractor") as run:
        wait_until(lambda: len(fresh.history()) > before, run)
        os.killpg(run.pid, signal.SIGKILL)
    fresh.snakemake("--unlock")
    assert any((fresh.root / ".snakemake/incomplete").iterdir()), "Snakemake has marked nothing"
    fresh.dvc("repro", "train_extractor")
    assert NOTHING in fresh.snakemake("--dry-run", "models/extractor")
