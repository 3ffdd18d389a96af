"""Run a small DAG through both engines, from nothing, and compare the bytes of every output.

Two clones of the working tree get the parameters of tests/dag/tiny.yaml, with trainings of 20 optimizer steps.
Snakemake runs one of them and `dvc repro` the other, at the same time. Then each engine looks at what the other one
made: nothing may be stale. A failed stage stops only the stages that need it.

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
    taken = time.monotonic() - began
    return {
        "command": " ".join(command),
        "seconds": taken,
        "exit": done.returncode,
        "ended": stages,
        "log": done.stdout,
    }


def outputs(sandbox: Sandbox) -> dict[str, str]:
    """Return the MD5 of each output in dvc.lock, by its path."""
    path = sandbox.root / "dvc.lock"
    entries = sandbox.lock().values() if path.exists() else []
    return {out["path"]: out["md5"] for entry in entries for out in entry["outs"]}


def measure(folder: Path, device: str, images: int, networks: int, seconds: int) -> dict[str, Any]:
    """Run both engines, then look for stale stages and different outputs."""
    began = time.monotonic()
    commands = {
        "snakemake": ("snakemake", "--cores", "all", "--resources", f"gpu={networks}", "--keep-going"),
        "dvc": ("dvc", "repro", "--keep-going"),
    }
    clones = {name: clone(folder / name, device, images) for name in commands}
    left = int(seconds - (time.monotonic() - began))
    with ThreadPoolExecutor() as pool:
        started = {name: pool.submit(run, clones[name], command, left) for name, command in commands.items()}
        runs = {name: future.result() for name, future in started.items()}
    for name, found in runs.items():
        if found["exit"]:
            print(f"--- {name} ended with {found['exit']}:\n{found['log'][-3000:]}", file=sys.stderr)
    stages = set(clones["snakemake"].stages())
    failed = {name: sorted(stages - set(found["ended"])) for name, found in runs.items()}
    for name, sandbox in clones.items():
        for stage in failed[name]:
            print(f"--- {name}, log of {stage}:\n{sandbox.log(stage.replace('@', '-'))[-1500:]}", file=sys.stderr)
    made = {name: outputs(sandbox) for name, sandbox in clones.items()}
    both = made["snakemake"].keys() & made["dvc"].keys()
    result: dict[str, Any] = {
        "stages": len(stages),
        "runs": {name: {key: found[key] for key in ("command", "seconds", "exit")} for name, found in runs.items()},
        "failed": failed,
        "outputs": len(both),
        "different": sorted(path for path in both if made["snakemake"][path] != made["dvc"][path]),
        "stale": sorted(clones["snakemake"].stale()),
    }
    if not any(failed.values()):
        result["ran again"] = clones["snakemake"].ran("dvc", "repro")
        result["snakemake finds nothing to do"] = NOTHING in clones["dvc"].snakemake("--dry-run")
    return result


def table(result: dict[str, Any]) -> str:
    """Return the result as Markdown."""
    lines = ["| engine | stages | seconds | failed |", "|---|---|---|---|"]
    for name, found in result["runs"].items():
        failed = result["failed"][name]
        made = result["stages"] - len(failed)
        lines.append(f"| `{found['command']}` | {made} | {found['seconds']:.0f} | {', '.join(failed)} |")
    same = result["outputs"] - len(result["different"])
    lines += ["", f"Outputs with the same bytes: {same} of {result['outputs']}. Stale then: {len(result['stale'])}."]
    if result["different"]:
        lines.append(f"Different: {', '.join(result['different'])}.")
    if "ran again" in result:
        lines.append(
            f"`dvc repro` after Snakemake ran {len(result['ran again'])} stages; Snakemake after `dvc repro` "
            f"{'found nothing to do' if result['snakemake finds nothing to do'] else 'found stages to run'}."
        )
    return "\n".join(lines)


def clean(result: dict[str, Any]) -> bool:
    """Return whether all stages ran, nothing is stale, and all outputs are the same."""
    bad = result["stale"] or result["different"] or any(result["failed"].values()) or result["ran again"]
    return not bad and result["snakemake finds nothing to do"]


def main() -> None:
    """Run both engines and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto", help="run.device of both clones")
    parser.add_argument("--images", type=int, default=640, help="of each training")
    parser.add_argument("--networks", type=int, default=4, help="stages with networks that share a GPU under Snakemake")
    parser.add_argument("--seconds", type=int, default=1200, help="limit of both engines")
    parser.add_argument("--out", type=Path, help="JSON file")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(Path(folder), args.device, args.images, args.networks, args.seconds)
    if args.out:
        args.out.write_text(json.dumps(result, indent=1))
    print(table(result))
    sys.exit(0 if clean(result) else 1)


if __name__ == "__main__":
    main()
