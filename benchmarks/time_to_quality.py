"""Seconds of training to a quality: the original recipe of each system beside ours, on the data of params.yaml.

Run it in a clone: `.venv/bin/python benchmarks/time_to_quality.py dit dvae --seeds 3 --out times.jsonl`. Networks,
data, evaluator and number of samples are those of params.yaml; the original recipe has its own objective, losses,
batch, optimizer, schedule and sampler (presets/original-*.yaml). Each is trained for parts of its length, every part a
training of its own, because a schedule is of its length. Seconds are of the training stages alone (logs/runs.jsonl), so
nothing else should run. Rows that --out holds already are not repeated; params.yaml is set back at the end.

Prints a row for each training, and how long each recipe takes to the score of our whole training; draws the scores over
seconds, a panel a system, where --picture names a file. An average of 0.9999 needs more updates than fit here, so the
original transformer is sampled with the weights of its last update where it has fewer than 30,000. The original decoder
is sampled by DDIM in 64 steps, which its code offers, in place of DDPM in 1,000: these take longer than its training.
"""

import argparse
import json
import math
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recipes import ROOT, refusal, repro, section_of  # which makes the package importable
from ruamel.yaml import YAML

from darkroom.report.scores import error_of

Changes = dict[str, dict[str, Any]]
PARTS = (0.125, 0.25, 0.5, 1.0)
RAW = 30_000  # updates below which an average of 0.9999 is still one of the first weights
_RUNS = ROOT / "logs/runs.jsonl"
_ADAM = {"optimizer": "adamw", "betas": [0.9, 0.999], "warmup": 0, "weight_decay": 0.0}


@dataclass(frozen=True)
class System:
    """A system as it is trained here and as its originals train it.

    trained: the stages that train it, whose seconds count.
    score: of `metrics/TARGET.json`, and whether more is better.
    target: what is scored.
    training: the sections of params.yaml with its lengths.
    original: keys that make params.yaml the original recipe.
    both: keys of both.
    alone: sections of which the original keeps no other key.
    """

    trained: Sequence[str]
    target: str
    score: str
    higher: bool
    training: Sequence[str]
    original: Changes
    both: Changes = field(default_factory=dict)
    alone: Sequence[str] = ()


def _tokenizer(kind: str, score: str, higher: bool, target: str, original: Changes) -> System:
    both = {"train_tokenizer": {"kind": kind}, "train_generator": {"kind": "none"}, "train_clip": {"source": "none"}}
    return System(("train_tokenizer",), target, score, higher, [f"train_tokenizer.{kind}.training"], original, both)


SYSTEMS = {
    "dit": System(
        ("train_generator",),
        "generator",
        "fd_debiased",
        False,
        ["train_generator.training"],
        {
            "train_generator.training": _ADAM
            | {"batch": 256, "learning_rate": 0.0001, "schedule": "constant", "clip_norm": None}
            | {"ema_decay": 0.9999, "ema_warmup": False},
            "train_generator.dit.diffusion": {"objective": "gaussian", "schedule": "linear", "target": "eps"}
            | {"variance": "learned_range", "bound_weight": 1.0, "normalise": "fixed"},
            "train_generator.dit.sampling": {"solver": "ddim", "steps": 50},
            "sample_generator.dit": {"solver": "ddpm", "steps": 250, "spacing": "linspace"},
        },
        alone=["train_generator.dit.diffusion"],
    ),
    "dvae": _tokenizer(
        "dvae",
        "psnr",
        True,
        "tokenizer",
        {
            "train_tokenizer.dvae.training": _ADAM
            | {"batch": 8, "learning_rate": 0.001, "schedule": "exponential", "final_rate": 0.0591}
            | {"clip_norm": None, "ema_decay": 0.0},
            "train_tokenizer.dvae": {"alpha": "unit", "kl_reduction": "sum", "kl_weight": 0.0},
        },
    ),
    "vqgan": _tokenizer(
        "vqgan",
        "psnr",
        True,
        "tokenizer",
        {
            "train_tokenizer.vqgan.training": _ADAM
            | {"batch": 32, "learning_rate": 0.0003, "schedule": "constant", "clip_norm": None, "ema_decay": 0.995},
            "train_tokenizer.vqgan": {"pixels": "unit", "quantiser": "lfq", "reconstruction": "l1"},
            "train_tokenizer.vqgan.lfq": {"diversity": 4.0, "commitment_weight": 0.0},
        },
    ),
    "vq_ar": _tokenizer(
        "vq_ar",
        "fd_debiased",
        False,
        "tokenizer_samples",
        {
            "train_tokenizer.vq_ar.training": _ADAM
            | {"batch": 32, "learning_rate": 0.0003, "schedule": "constant", "clip_norm": 0.5, "ema_decay": 0.0},
            "train_tokenizer.vq_ar": {"kmeans_init": False, "dead_below": 0.0, "dropout": 0.0}
            | {"reconstruction_weight": 1.0},
        },
    ),
    "decoder": System(
        ("train_decoder@base", "train_decoder@up"),
        "decoder",
        "fd_debiased",
        False,
        ["train_decoder.training", "train_decoder.unets.up.training"],
        {
            "train_decoder.training": _ADAM
            | {"batch": 64, "learning_rate": 0.0001, "schedule": "constant", "weight_decay": 0.01, "clip_norm": 0.5},
            "train_decoder.unets.base.diffusion": {"target": "eps", "variance": "learned_range", "min_snr": None},
            "sample_decoder.common": {"solver": "ddim", "steps": 64, "guidance": 1.0},
            "sample_decoder.unets.up": {"steps": 64},
        },
    ),
}


def laid(params: Any, changes: Changes) -> None:
    """Lay keys over params.yaml, sections made where they are missing."""
    for path, values in changes.items():
        section_of(params, path).update(values)


def recipe(params: Any, system: System, whose: str, part: float, seed: int) -> Any:
    """Return params.yaml with a recipe, for a part of the length that params.yaml says."""
    laid(params, system.both)
    above = {**params["train_tokenizer"]["training"]} if system.training[0].startswith("train_tokenizer") else {}
    lengths = []
    for path in system.training:
        own = above | {**section_of(params, path)}
        lengths.append((own["images"], own.get("warmup") or 0))
    if whose == "original":
        for path in system.alone:
            section_of(params, path).clear()
        laid(params, system.original)
    batch = above.get("batch", 64)
    for path, (images, warmup) in zip(system.training, lengths, strict=True):
        training = section_of(params, path)
        batch = training.get("batch") or batch
        training["images"] = max(batch, round(images * part / batch) * batch)
        training["validate_every"] = training["images"]
        training["warmup"] = min(round(warmup * part / batch) * batch, training["images"] - batch)
        if whose == "original":
            training["warmup"] = 0
        if training.get("ema_decay") == 0.9999 and training["images"] < RAW * batch:
            section_of(params, "sample_generator.common")["weights"] = "raw"
    section_of(params, system.training[0])["seed"] = seed
    return params


def seconds_of(stages: Sequence[str], clock: str = "seconds") -> float:
    """Return the seconds of the last runs of stages: by the clock (`seconds`), or of CPU time (`cpu`)."""
    last: dict[str, float] = {}
    for line in _RUNS.read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "end" and clock in event:
            last[event["stage"]] = event[clock]
    return sum(last[stage] for stage in stages)


def means(rows: Sequence[dict[str, Any]]) -> list[tuple[float, float]]:
    """Return the mean seconds and score of each length of a recipe, in order."""
    found = []
    for part in sorted({row["part"] for row in rows}):
        of_it = [row for row in rows if row["part"] == part]
        found.append((statistics.mean(row["seconds"] for row in of_it), statistics.mean(row["score"] for row in of_it)))
    return found


def reached(rows: Sequence[dict[str, Any]], goal: float, higher: bool) -> float | None:
    """Return the seconds at which the mean score of a recipe comes to a goal, between two lengths in their logarithms.

    None: not in its longest training.
    """
    points = means(rows)
    good = [score >= goal if higher else score <= goal for _, score in points]
    if True not in good:
        return None
    at = good.index(True)
    if not at:
        return points[0][0]
    (before, worse), (after, better) = points[at - 1], points[at]
    fraction = (goal - worse) / (better - worse)
    return math.exp(math.log(before) + fraction * (math.log(after) - math.log(before)))


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows of all systems, and the seconds to the score of our whole training."""
    lines = ["| system | recipe | part | seconds | score | value |", "|---|---|---|---|---|---|"]
    for name, whose, part in dict.fromkeys((row["system"], row["whose"], row["part"]) for row in rows):
        of_it = [row for row in rows if (row["system"], row["whose"], row["part"]) == (name, whose, part)]
        values = [row["score"] for row in of_it]
        error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else of_it[0]["error"]
        seconds = statistics.mean(row["seconds"] for row in of_it)
        score = SYSTEMS[name].score
        lines.append(
            f"| {name} | {whose} | {part:g} | {seconds:.0f} | {score} | {statistics.mean(values):.3g} ± {error:.2g} |"
        )
    lines += ["", "| system | ours reaches | original takes | times as long |", "|---|---|---|---|"]
    for name in dict.fromkeys(row["system"] for row in rows):
        ours, theirs = (
            [row for row in rows if (row["system"], row["whose"]) == (name, whose)] for whose in ("ours", "original")
        )
        if not ours or not theirs:
            continue
        whole = [row["score"] for row in ours if row["part"] == max(row["part"] for row in ours)]
        goal, higher = statistics.mean(whole), SYSTEMS[name].higher
        own, other = (reached(each, goal, higher) for each in (ours, theirs))
        most = max(row["seconds"] for row in theirs)
        took = f"{other:.0f} s" if other else f"more than {most:.0f} s"
        ratio = f"{other / own:.1f}" if own and other else f"> {most / own:.1f}" if own else ""
        lines.append(f"| {name} | {goal:.3g} in {own or 0:.0f} s | {took} | {ratio} |")
    return "\n".join(lines)


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw score over seconds, a panel a system: a point a training, a line through the means of each length."""
    from matplotlib import pyplot, ticker

    names = list(dict.fromkeys(row["system"] for row in rows))
    figure, axes = pyplot.subplots(1, len(names), figsize=(4 * len(names), 3.6), layout="constrained", squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        for whose, colour in (("original", "tab:orange"), ("ours", "tab:blue")):
            of_it = [row for row in rows if (row["system"], row["whose"]) == (name, whose)]
            axis.plot(*zip(*means(of_it), strict=True), color=colour, alpha=0.4)
            axis.errorbar(
                [row["seconds"] for row in of_it],
                [row["score"] for row in of_it],
                [row["error"] for row in of_it],
                fmt="o",
                color=colour,
                label=whose,
            )
        axis.set(title=name, xlabel="seconds of training", ylabel=SYSTEMS[name].score, xscale="log")
        if not SYSTEMS[name].higher:
            axis.set_yscale("log")
        for side in (axis.xaxis, axis.yaxis):
            if side.get_scale() == "log":
                side.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
                side.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
                side.set_minor_formatter(ticker.NullFormatter())
        axis.legend(frameon=False)
    figure.savefig(path, dpi=110, metadata={"Software": None})


def main() -> None:
    """Train and score what --out does not hold yet; print the tables, and draw them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("systems", nargs="+", choices=SYSTEMS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--parts", type=float, nargs="+", default=PARTS, help="of the length of our training")
    parser.add_argument("--longer", type=float, default=4.0, help="the original's length, in terms of ours")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one for each training")
    parser.add_argument("--picture", type=Path, help="PNG of the scores over seconds")
    args = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    yaml, text = YAML(), (ROOT / "params.yaml").read_text()
    rows = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    known = {(row["system"], row["whose"], row["part"], row["seed"]) for row in rows}
    try:
        for seed in range(args.seeds):
            for name in args.systems:
                for whose, longer in (("ours", 1.0), ("original", args.longer)):
                    for part in (longer * each for each in args.parts):
                        if (name, whose, part, seed) in known:
                            continue
                        system = SYSTEMS[name]
                        with (ROOT / "params.yaml").open("w") as file:
                            yaml.dump(recipe(yaml.load(text), system, whose, part, seed), file)
                        if refused := refusal():
                            raise SystemExit(f"{name}, {whose}: {refused}")
                        scores = repro(system.target)
                        found = {"score": scores[system.score], "error": scores.get(error_of(system.score), 0.0)}
                        row = {"system": name, "whose": whose, "part": part, "seed": seed} | found
                        row["seconds"] = seconds_of(system.trained)
                        with args.out.open("a") as file:
                            file.write(json.dumps(row) + "\n")
                        rows.append(row)
    finally:
        (ROOT / "params.yaml").write_text(text)
    rows = [row for row in rows if row["system"] in args.systems]
    print(table(rows))
    if args.picture:
        draw(rows, args.picture)


if __name__ == "__main__":
    main()
