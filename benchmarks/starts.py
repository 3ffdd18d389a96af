"""CPU seconds from the start of a stage's process until it decides what to do, and until it works.

    PYTHONPATH=src python benchmarks/starts.py [--runs 3] [--source OTHER/CLONE/src] [STAGE ...]
    PYTHONPATH=src python benchmarks/starts.py --job report

`decides`: the interpreter, the runner, and what the stage's module imports, all that a stage with nothing to do loads.
`works`: what its body imports besides, also inside functions, and the kinds of the default: the kl tokenizer where it
opens one. Both as user and system time of a process, less that of `import darkroom.runner, torch` in the column
`beyond torch`: the smallest of the runs, so that other work on the machine counts as little as it can.

With --job, in a clone that has run and in which nothing runs: runs this stage again, as a job of Snakemake does, and
prints the CPU seconds of DVC without the body.
"""

import argparse
import ast
import os
import subprocess
import sys
from pathlib import Path

RUNNER, TORCH = "import darkroom.cli, darkroom.runner", "import darkroom.cli, darkroom.runner, torch"
KL = "darkroom.models.tokenizers.kl.network"
OPENS = {
    "train_tokenizer": ["darkroom.models.tokenizers.kl.recipe"],
    "score_tokenizer": [KL, "torchmetrics"],
    "encode_latents": [KL],
    "train_generator": [KL],
    "sample_generator": [KL],
    "score_decoder": ["torchmetrics"],
    "score_text": ["torchmetrics"],
}


def seconds(code: str, source: Path, runs: int) -> float:
    """Return the least CPU seconds of a program."""
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    found = []
    for _ in range(runs):
        child = subprocess.Popen([sys.executable, "-c", code], env=environment)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise SystemExit(f"`{code}` ends with {child.returncode}")
        found.append(used.ru_utime + used.ru_stime)
    return min(found)


def inside(stage: str, source: Path) -> list[str]:
    """Return the modules of the package that a stage's module imports anywhere."""
    tree = ast.parse((source / f"darkroom/stages/{stage}.py").read_text())
    found = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    return [module for module in found if module.startswith("darkroom.")]


def job(stage: str, source: Path, runs: int) -> float:
    """Return the least CPU seconds of DVC for a stage, in a child of a parent, without the body of the stage."""
    code = f"""if True:
        import os, sys, time
        from darkroom.dag import parents
        parents._load("light")
        for _ in range({runs}):
            if (pid := os.fork()) == 0:
                began, sys.argv[1:] = time.process_time(), ["repro", "--quiet", "--single-item", "--force", "{stage}"]
                parents._move(".")
                from darkroom.dag import dvc
                status = dvc.main()
                print("CPU", time.process_time() - began, flush=True)
                os._exit(status)
            if os.waitpid(pid, 0)[1]:
                sys.exit(1)
    """
    environment = os.environ | {"PYTHONPATH": str(source), "DARKROOM_RUN": "benchmark"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return min(float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("CPU "))


def main() -> None:
    """Print a table."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("stages", nargs="*")
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--source", type=Path, default=Path(__file__).resolve().parents[1] / "src")
    options.add_argument("--job", metavar="STAGE", help="run this stage again, and print the CPU seconds of DVC")
    chosen = options.parse_args()
    if chosen.job:
        print(f"job of `{chosen.job}`: {job(chosen.job, chosen.source, chosen.runs):.2f} s of CPU besides its body")
        return
    from darkroom.dag.stages import STAGES

    runner, torch = (seconds(code, chosen.source, chosen.runs) for code in (RUNNER, TORCH))
    print(f"runner {runner:.2f}, with torch {torch:.2f}\n")
    print("| stage | decides | works | beyond torch |\n|---|---|---|---|")
    for stage in chosen.stages or STAGES:
        start = f"{RUNNER}, darkroom.stages.{stage}"
        modules = inside(stage, chosen.source) + OPENS.get(stage, [])
        body = "".join(f"; import {module}" for module in modules)
        decides, works = (seconds(start + more, chosen.source, chosen.runs) for more in ("", body))
        print(f"| `{stage}` | {decides:.2f} | {works:.2f} | {max(works - torch, 0):.2f} |", flush=True)


if __name__ == "__main__":
    main()
