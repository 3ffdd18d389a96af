"""While Snakemake runs the tiny DAG, every command that looks at it answers, and writes nothing that the run reads."""

import subprocess
import sys
from pathlib import Path

import pytest

from dag.sandbox import Sandbox

LOOKING = ("why report", "scores", "show", "times", "doctor", "plan report", "tune")
NOT_YET = ("has no metrics", "no images exist yet", "no finished stage")  # before the first stages are done


@pytest.mark.slow
def test_every_command_answers_while_the_dag_runs(tmp_path: Path) -> None:
    sandbox = Sandbox.clone(tmp_path / "clone")
    rounds = 0
    with sandbox.start("snakemake", "--cores", "2") as run:
        while run.poll() is None:
            for command in LOOKING:
                done = subprocess.run(
                    [sys.executable, "-m", "darkroom", *command.split()],
                    cwd=sandbox.root,
                    env=sandbox.environment,
                    capture_output=True,
                    text=True,
                )
                fine = done.returncode == 0 or command == "doctor" or any(text in done.stderr for text in NOT_YET)
                assert fine and "Traceback" not in done.stderr, f"{command}:\n{done.stdout}{done.stderr}"
            rounds += 1
    assert run.returncode == 0 and rounds > 1
    sandbox.assert_nothing_to_do()
