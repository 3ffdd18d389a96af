"""What it costs to ask when nothing is to be done: `dvc repro`, `snakemake -n`, `darkroom check`.

Run it in a clone where everything is up to date: `.venv/bin/python benchmarks/no_op.py`. Prints a Markdown table.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUNS = 5
# Command, what it prints when nothing is to be done, and the most seconds that it may take.
COMMANDS = (
    ("dvc repro", "up to date", 2.0),
    ("snakemake -n", "Nothing to be done", 3.5),
    ("darkroom check", "are valid and fit each other", 0.5),
)


def seconds(command: str, expected: str) -> float:
    """Return the wall time of a command that must print `expected`."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    program = command.split()
    if program[0] == "darkroom":  # as stages call it, so that it needs no installed program
        program[:1] = [sys.executable, "-m", "darkroom"]
        environment["PYTHONPATH"] = "src"
    began = time.perf_counter()
    run = subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True)
    took = time.perf_counter() - began
    if expected not in run.stdout + run.stderr:
        sys.exit(f"`{command}` found something to do or failed; run `snakemake --cores all` first.\n{run.stderr}")
    return took


def main() -> None:
    """Measure each command in turn, RUNS times, and print best and median."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None).parse_args()
    taken: dict[str, list[float]] = {command: [] for command, _, _ in COMMANDS}
    for _ in range(RUNS):
        for command, expected, _ in COMMANDS:
            taken[command].append(seconds(command, expected))
    print(f"| nothing to do | best, s | median of {RUNS}, s | at most, s |\n|---|---|---|---|")
    for command, _, limit in COMMANDS:
        print(f"| `{command}` | {min(taken[command]):.2f} | {statistics.median(taken[command]):.2f} | {limit} |")


if __name__ == "__main__":
    main()
