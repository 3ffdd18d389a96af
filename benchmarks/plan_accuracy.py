"""What `darkroom plan` says beside what stages took: each body, and the whole under Snakemake.

Run it on a quiet machine, in a clone whose whole DAG has just run there: `snakemake --cores all`, then
`.venv/bin/python benchmarks/plan_accuracy.py`. The plan measures everything; the last runs are what it is compared
with. Prints a Markdown table, and ends with 1 where the answer took too long or a time is too far off.
"""

import argparse
import json
import sys
import time
from math import exp, log
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))
LONGEST, FACTOR = 20.0, 1.5  # seconds of the answer; factor between what was said and what was
SHORT = 2.0  # seconds; a body below it is not judged: half a second more or less is no matter


def real(stages: set[str]) -> tuple[dict[str, float], float]:
    """Return the seconds of the last body of each stage, and those from their first start to their last end."""
    seconds: dict[str, float] = {}
    begins: dict[str, float] = {}
    last = 0.0
    for text in (ROOT / "logs/runs.jsonl").read_text().splitlines():
        line = json.loads(text)
        if line["stage"] not in stages:  # `code`, which whoever asks what is stale may run
            continue
        if line["event"] == "start":
            begins[line["stage"]] = line["time"]
        else:
            seconds[line["stage"]], last = line["seconds"], line["time"]
    return seconds, last - min(begins[stage] for stage in seconds)


def main() -> int:
    """Print what was said, what was, and their ratio; return the exit code."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    from darkroom.tools.plan.plan import plan

    began = time.perf_counter()
    said = json.loads(plan(everything=True, in_json=True, history=False))
    took = time.perf_counter() - began
    found, whole = real({stage["stage"] for stage in said["stages"]})
    print("| stage | said, s | was, s | said / was |\n|---|---|---|---|")
    ratios = []
    for stage in said["stages"]:
        name, told = stage["stage"], stage["seconds"]
        if name not in found:
            continue
        judged = max(told, found[name]) >= SHORT
        ratios += [told / found[name]] if judged else []
        print(f"| {name} | {told:.1f} | {found[name]:.1f} | {f'{told / found[name]:.2f}' if judged else ''} |")
    # Before the first body and behind the last one Snakemake and DVC work, which no line of the history shows.
    whole += 2 * said["seconds"]["between"]
    told = said["seconds"]["snakemake"]
    print(f"| the whole, Snakemake | {told:.0f} | {whole:.0f} | {told / whole:.2f} |")
    ratios.append(told / whole)
    furthest = exp(max(abs(log(ratio)) for ratio in ratios))
    print(f"\nAnswered in {took:.1f} s (at most {LONGEST:.0f}); furthest off by a factor of {furthest:.2f} ({FACTOR}).")
    print(f"What was measured took {said['seconds']['load']:.2f} times its own work: 1.2 and more is no quiet machine.")
    return int(took > LONGEST or furthest > FACTOR)


if __name__ == "__main__":
    sys.exit(main())
