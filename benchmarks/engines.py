"""Run a small DAG through both engines, from nothing, and compare the bytes of every output.

Two clones of the working tree get the parameters of tests/dag/tiny.yaml, with trainings of 20 optimizer steps.
Snakemake runs one of them and `dvc repro` the other, at the same time. Then each engine looks at what the other one
made: nothing may be stale. A failed stage stops only the stages that need it, and of an engine that --seconds cuts off
the outputs so far are compared.

Run it in a git repository: `.venv/bin/python benchmarks/engines.py --device auto`. It prints a Markdown table and exits
with 1 if a stage failed, something is stale, or outputs differ.
"""

import argparse
import json
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from dag.sandbox import NOTHING, Sandbox  # noqa: E402

CUT_OFF = 124  # exit status of `timeout`
TRAININGS = ("teacher", "tokenizer", "extractor", "generator", "classifier", "clip", "decoder", "scene_reader", "prior")


def clone(root: Path, device: str, images: int) -> Sandbox:
    """Return a clone of the working tree with small settings."""
    sandbox = Sandbox.clone(root)
    trainings = {f"train_{name}": {"training": {"images": images}} for name in TRAININGS}
    sandbox.edit(trainings | {"run": {"device": device}})
    sandbox.edit({"train_decoder": {"unets": {"up": {"training": {"images": images}}}}})
    return sandbox


def run(sandbox: Sandbox, command: tuple[str, ...], seconds: int) -> dict[str, Any]:
    """Run an engine for at most `seconds`; return its time, exit status, the stages that ended, and its output."""
    began = time.monotonic()
    done = sandbox.attempt("timeout", "--kill-after=10", str(seconds), *command)
    stages = [line["stage"] for line in sandbox.history() if line["event"] == "end"]
    found = {"seconds": time.monotonic() - began, "exit": done.returncode, "ended": stages, "log": done.stdout}
    return {"command": " ".join(command), **found}


def outputs(sandbox: Sandbox) -> dict[str, str]:
    """Return the MD5 of each output in dvc.lock, by its path."""
    path = sandbox.root / "dvc.lock"
    entries = sandbox.lock().values() if path.exists() else []
    return {out["path"]: out["md5"] for entry in entries for out in entry["outs"]}


def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run both engines, then look for stale stages and different outputs."""
    deadline = time.monotonic() + args.seconds
    commands = {
        "snakemake": ("snakemake", "--cores", "all", "--keep-going"),
        "dvc": ("dvc", "repro", "--keep-going", *args.targets),
    }
    clones = {name: clone(folder / name, args.device, args.images) for name in commands}
    for sandbox in clones.values():
        sandbox.environment["DARKROOM_STAGES_PER_GPU"] = str(args.networks)
    with ThreadPoolExecutor() as pool:
        left = int(deadline - time.monotonic())
        started = {name: pool.submit(run, clones[name], command, left) for name, command in commands.items()}
        runs = {name: future.result() for name, future in started.items()}
    for name, found in runs.items():
        if found["exit"]:
            print(f"--- {name} ended with {found['exit']}:\n{found['log'][-3000:]}", file=sys.stderr)
    made = {name: outputs(sandbox) for name, sandbox in clones.items()}
    both = made["snakemake"].keys() & made["dvc"].keys()
    result: dict[str, Any] = {
        "stages": len(clones["snakemake"].stages()),
        "runs": {name: {key: value for key, value in found.items() if key != "log"} for name, found in runs.items()},
        "outputs": len(both),
        "different": sorted(path for path in both if made["snakemake"][path] != made["dvc"][path]),
    }
    if not runs["snakemake"]["exit"]:
        result["stale after snakemake"] = sorted(clones["snakemake"].stale())
        result["dvc repro after snakemake"] = clones["snakemake"].ran("dvc", "repro")
    if not runs["dvc"]["exit"] and not args.targets:
        result["snakemake after dvc repro"] = NOTHING in clones["dvc"].snakemake("--dry-run")
    return result


def table(result: dict[str, Any]) -> str:
    """Return the result as Markdown."""
    lines = ["| engine | stages | seconds | |", "|---|---|---|---|"]
    for name, found in result["runs"].items():
        end = {0: "", CUT_OFF: "cut off"}.get(found["exit"], f"failed: {name} ended with {found['exit']}")
        lines.append(f"| `{found['command']}` | {len(found['ended'])} | {found['seconds']:.0f} | {end} |")
    same = result["outputs"] - len(result["different"])
    lines += ["", f"Outputs with the same bytes: {same} of {result['outputs']}."]
    if result["different"]:
        lines.append(f"Different: {', '.join(result['different'])}.")
    if (ran := result.get("dvc repro after snakemake")) is not None:
        lines.append(f"Stale after Snakemake: {', '.join(result['stale after snakemake']) or 'nothing'}.")
        lines.append(f"`dvc repro` after it ran: {', '.join(ran) or 'nothing'}.")
    if (idle := result.get("snakemake after dvc repro")) is not None:
        lines.append(f"Snakemake after `dvc repro` found {'nothing' if idle else 'stages'} to run.")
    return "\n".join(lines)


def clean(result: dict[str, Any]) -> bool:
    """Return whether no stage failed, nothing is stale, and all outputs that both engines made are the same."""
    failed = any(found["exit"] not in (0, CUT_OFF) for found in result["runs"].values())
    unequal = result["different"] or result.get("stale after snakemake") or result.get("dvc repro after snakemake")
    return not failed and not unequal and result.get("snakemake after dvc repro", True)


def main() -> None:
    """Run both engines and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto", help="run.device of both clones")
    parser.add_argument("--images", type=int, default=640, help="of each training")
    parser.add_argument("--networks", type=int, default=4, help="stages with networks that share a GPU under Snakemake")
    parser.add_argument("--seconds", type=int, default=1200, help="limit of both engines")
    parser.add_argument("--targets", nargs="*", default=[], help="stages for `dvc repro`; default: all")
    parser.add_argument("--out", type=Path, help="JSON file")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(args, Path(folder))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1))
    print(table(result))
    sys.exit(0 if clean(result) else 1)


if __name__ == "__main__":
    main()
