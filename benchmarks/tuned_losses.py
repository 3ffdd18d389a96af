"""Held-out loss of short trainings with each setting that `darkroom tune` may take, beside that of exact ones.

Run it in a clone whose data are ingested: `.venv/bin/python benchmarks/tuned_losses.py kl dvae dit --out losses.jsonl`.
Each training sees some 2,000 images (`--images`) of the data of params.yaml with that training's own settings, and is
validated at its end. Of each setting the same seeds are trained, so that data, order and noise are the same; the
difference from exact settings (fp32, not compiled) stands beside what another seed changes. Rows that --out holds
already are not repeated; params.yaml is set back at the end. Prints a Markdown table.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from recipes import ROOT  # which makes the package importable
from ruamel.yaml import YAML

from darkroom.tools.editing import put
from darkroom.tools.tune.search import EXACT, key_of


class System(NamedTuple):
    """A training: its stage, where its curves are, and what params.yaml says for it."""

    stage: str
    curves: str
    sections: dict[str, dict[str, Any]]


SYSTEMS = {
    **{
        kind: System("train_tokenizer", "tokenizer", {"train_tokenizer": {"kind": kind}})
        for kind in ("kl", "dvae", "vqgan", "vq_ar")
    },
    "dit": System("train_generator", "generator", {"train_generator": {"kind": "dit"}}),
    "clip": System("train_clip", "clip", {}),
    "decoder": System("train_decoder@base", "decoder/base", {}),
    "extractor": System("train_extractor", "extractor", {}),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "exact": {},
    "bf16": {"precision": "bf16"},
    "channels last": {"channels_last": True},
    "compile": {"compile": True},
    "all three": {"precision": "bf16", "channels_last": True, "compile": True},
}


def params_of(params: dict[str, Any], system: System, settings: dict[str, Any], seed: int, images: int) -> Any:
    """Return params.yaml for a training with some settings."""
    for name, values in system.sections.items():
        params[name].update(values)
    settings = {key: value for key, value in EXACT.items() if key != "tf32"} | settings
    lengths = {"images": images, "validate_every": images, "warmup": images // 8, "log_every": images}
    for key, value in (settings | lengths | {"seed": seed}).items():
        put(params, key_of(system.stage, key, params), value)
    stage = system.stage.partition("@")[0]
    if "evaluate" in (params[stage] or {}):
        params[stage]["evaluate"]["every"] = 0
    return params


def held_out(system: System) -> float:
    """Train, and return the validation loss at the end."""
    done = subprocess.run(["dvc", "repro", "--quiet", system.stage], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{system.stage}: {done.stderr[-2000:]}{done.stdout[-2000:]}")
    found: dict[str, Any] = json.loads((ROOT / "curves" / system.curves / "metrics.json").read_text())
    return float(found["val"]["loss"])


def table(rows: list[dict[str, Any]]) -> str:
    """Return each setting's mean difference from exact settings, beside what another seed changes."""
    lines = ["| training | setting | seeds | held-out loss | difference | of what another seed changes |"]
    lines.append("|---|---|---|---|---|---|")
    for name in dict.fromkeys(row["system"] for row in rows):
        losses = {(row["setting"], row["seed"]): row["loss"] for row in rows if row["system"] == name}
        exact = {seed: loss for (setting, seed), loss in losses.items() if setting == "exact"}
        noise = statistics.stdev(exact.values()) if len(exact) > 1 else math.nan
        for setting in dict.fromkeys(setting for setting, _ in losses):
            values = {seed: loss for (each, seed), loss in losses.items() if each == setting}
            cells = [name, setting, str(len(values)), f"{statistics.mean(values.values()):.4g}"]
            if setting == "exact":
                cells += ["", f"{noise:.2g}"]
            else:
                apart = statistics.mean(values[seed] - exact[seed] for seed in values)
                cells += [f"{apart:+.2g}", f"{apart / noise:+.2f}"]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Train what --out does not hold yet; print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("systems", nargs="+", choices=SYSTEMS)
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--images", type=int, default=2112, help="a multiple of every batch: %(default)s")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one for each training")
    args = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    yaml, path = YAML(), ROOT / "params.yaml"
    text = path.read_text()
    rows = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    known = {(row["system"], row["setting"], row["seed"]) for row in rows}
    settings = dict.fromkeys(["exact", *args.settings])
    try:
        for name in args.systems:
            for setting in settings:
                for seed in range(args.seeds):
                    if (name, setting, seed) in known:
                        continue
                    system = SYSTEMS[name]
                    with path.open("w") as file:
                        yaml.dump(params_of(yaml.load(text), system, SETTINGS[setting], seed, args.images), file)
                    row = {"system": name, "setting": setting, "seed": seed, "loss": held_out(system)}
                    with args.out.open("a") as file:
                        file.write(json.dumps(row) + "\n")
                    rows.append(row)
    finally:
        path.write_text(text)
    print(table([row for row in rows if row["system"] in args.systems and row["setting"] in settings]))


if __name__ == "__main__":
    main()
