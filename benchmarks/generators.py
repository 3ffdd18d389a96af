"""Tokenizers x generators at equal seconds of training: scores, their errors, and CPU seconds of sampling.

Run it in a clone that `darkroom preset digits` (or `darkroom init`) has set up:
`.venv/bin/python benchmarks/generators.py --seconds 180 --seeds 3 --out cells.jsonl`. A first training of each cell
measures its images per second, from which follow its images; nothing else should run then. Rows that --out holds
already are not repeated, and other seeds see as many images as they did; params.yaml is set back at the end.
`--generators "flow, 4" "mean_flow, 1"` compares calls.
Prints a Markdown table; the error is over the seeds, of one seed that of the score itself. Grids are kept beside --out.
"""

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from recipes import ROOT, refusal, repro, section_of  # which makes the package importable
from ruamel.yaml import YAML
from time_to_quality import seconds_of

from darkroom.report.scores import error_of

Changes = dict[str, dict[str, Any]]
_SAMPLES, _DIT = "sample_generator", "train_generator.dit"
_FLOW: Changes = {"train_generator": {"kind": "dit"}, f"{_DIT}.diffusion": {"objective": "flow"}}
_MUON: Changes = {"train_generator.training": {"optimizer": "muon", "learning_rate": 0.004}}
_MEAN: Changes = {  # as presets/digits-meanflow.yaml, with the guidance of longer trainings
    "train_generator": {"kind": "dit"},
    f"{_DIT}.diffusion": {
        "objective": "mean_flow",
        "time_mean": -0.4,
        "time_std": 2.0,
        "mean_flow": {"guidance": 1.25, "power": 1.0},
    },
    f"{_DIT}.sampling": {"guidance": 1.0},
    **_MUON,
}
_VQGAN: Changes = {  # as presets/digits-ar.yaml
    "train_tokenizer": {"kind": "vqgan"},
    "train_tokenizer.training": {"optimizer": "adamw", "images": 8000, "warmup": 2400},
}
TOKENIZERS: dict[str, Changes] = {
    "kl": {"train_tokenizer": {"kind": "kl"}},
    "dvae": {"train_tokenizer": {"kind": "dvae"}},
    "vqgan": _VQGAN,
    "vqgan fsq": {
        **_VQGAN,
        "train_tokenizer.vqgan": {"quantiser": "fsq", "codebook_size": 240, "codebook_dim": 3},
        "train_tokenizer.vqgan.fsq": {"levels": [8, 6, 5]},
    },
    "vq_ar": {"train_tokenizer": {"kind": "vq_ar"}},
}


def _calls(changes: Changes, steps: int, guidance: float) -> Changes:
    return {**changes, f"{_SAMPLES}.dit": {"steps": steps, "guidance": guidance}}


_BY_CALLS = (
    ("flow, {}", {**_FLOW, **_MUON}, 1.5),
    ("flow, {}, unguided", {**_FLOW, **_MUON}, 1.0),
    ("mean_flow, {}", _MEAN, 1.0),
)
# The number after the comma is that of the calls.
GENERATORS: dict[str, Changes] = {
    "dit": _calls(_FLOW, 25, 2.0),
    **{
        name.format(steps): _calls(changes, steps, scale)
        for name, changes, scale in _BY_CALLS
        for steps in (1, 2, 4, 25)
    },
    "autoregressive": {  # as presets/digits-ar.yaml
        "train_generator": {"kind": "autoregressive"},
        "train_generator.training": {"learning_rate": 0.002},
        f"{_SAMPLES}.autoregressive": {"guidance": 2.0, "temperature": 0.8},
    },
    "masked": {  # as presets/digits-masked.yaml
        "train_generator": {"kind": "masked"},
        f"{_SAMPLES}.masked": {"guidance": 2.0, "steps": 16, "temperature": 0.7},
    },
}
DEFAULT = ("dit", "mean_flow, 1", "autoregressive", "masked")
OF_CODES = ("autoregressive", "masked")
SCORES = ("fd_debiased", "label_accuracy", "precision", "recall")


def params_of(text: str, tokenizer: str, generator: str, seed: int, images: int, samples: int) -> Any:
    """Return the parameters of a cell for a training of some images, and some samples."""
    yaml = YAML()
    params = yaml.load(text)
    for changes in (TOKENIZERS[tokenizer], GENERATORS[generator]):
        for path, values in changes.items():
            section_of(params, path).update(values)
    codes = tokenizer != "kl"
    section_of(params, "encode_latents")["latents"] = "codes" if codes else "continuous"
    training = section_of(params, "train_generator.training")
    batch = training.get("batch") or section_of(params, "training").get("batch", 64)
    images = max(2, round(images / batch)) * batch
    training |= {"images": images, "validate_every": images, "seed": seed}
    training["warmup"] = round(images / 10 / batch) * batch
    section_of(params, "train_clip")["source"] = "none"
    section_of(params, f"{_SAMPLES}.common")["images"] = samples
    return params


def write(text: str, cell: tuple[str, str, int], images: int, samples: int) -> None:
    """Write params.yaml for a cell."""
    with (ROOT / "params.yaml").open("w") as file:
        YAML().dump(params_of(text, *cell, images, samples), file)
    if refused := refusal():
        raise SystemExit(f"{cell}: {refused}")


def speed() -> float:
    """Train a generator, and return its median images per second."""
    subprocess.run(["dvc", "repro", "--quiet", "--force", "--single-item", "train_generator"], cwd=ROOT, check=True)
    lines = (ROOT / "logs/train_generator/train.jsonl").read_text().splitlines()
    # Nothing was logged if it only ended a training that had been stopped at its last image: train again.
    return statistics.median(json.loads(line)["images_per_second"] for line in lines) if lines else speed()


def table(rows: list[dict[str, Any]]) -> str:
    """Return the cells with mean and error of each score."""
    lines = [
        f"| tokenizer | generator | images | {' | '.join(SCORES)} | CPU of sampling |",
        "|---" * (4 + len(SCORES)) + "|",
    ]
    for tokenizer, generator in dict.fromkeys((row["tokenizer"], row["generator"]) for row in rows):
        of_it = [row for row in rows if (row["tokenizer"], row["generator"]) == (tokenizer, generator)]
        cells = []
        for name in SCORES:
            values = [row["scores"].get(name, math.nan) for row in of_it]
            error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else of_it[0]["errors"][name]
            cells.append(f"{statistics.mean(values):.3g} ± {error:.2g}")
        images, seconds = (statistics.mean(row[name] for row in of_it) for name in ("images", "sampling_cpu"))
        lines.append(f"| {tokenizer} | {generator} | {images:,.0f} | {' | '.join(cells)} | {seconds:.0f} s |")
    return "\n".join(lines)


def main() -> None:
    """Train and score what --out does not hold yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizers", nargs="+", choices=TOKENIZERS, default=list(TOKENIZERS))
    parser.add_argument("--generators", nargs="+", choices=GENERATORS, default=DEFAULT)
    parser.add_argument("--seconds", type=float, default=180, help="of each training")
    parser.add_argument("--probe", type=int, default=3200, help="images of the training that measures the speed")
    parser.add_argument("--images", type=int, help="of each training, instead of the seconds")
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one for each training")
    args = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    text = (ROOT / "params.yaml").read_text()
    rows = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    known = {(row["tokenizer"], row["generator"], row["seed"]) for row in rows}
    lengths = {(row["tokenizer"], row["generator"].partition(",")[0]): row["images"] for row in rows}
    try:
        for seed in range(args.seeds):
            for tokenizer in args.tokenizers:
                for generator in args.generators:
                    cell = (tokenizer, generator, seed)
                    if cell in known or (tokenizer == "kl" and generator in OF_CODES):
                        continue
                    trained = (tokenizer, generator.partition(",")[0])  # the calls do not change the training
                    if args.images is not None:
                        lengths[trained] = args.images
                    elif trained not in lengths:
                        write(text, cell, args.probe, args.samples)
                        subprocess.run(["dvc", "repro", "--quiet", "encode_latents"], cwd=ROOT, check=True)
                        lengths[trained] = round(args.seconds * speed())
                    images = lengths[trained]
                    write(text, cell, images, args.samples)
                    scores = repro("generator")
                    row: dict[str, Any] = {"tokenizer": tokenizer, "generator": generator, "seed": seed}
                    row |= {"images": images, "sampling_cpu": seconds_of(["sample_generator"], "cpu")}
                    row["scores"] = {name: scores[name] for name in SCORES if name in scores}
                    row["errors"] = {name: scores.get(error_of(name), 0.0) for name in SCORES}
                    with args.out.open("a") as file:
                        file.write(json.dumps(row) + "\n")
                    grid = args.out.with_suffix("") / f"{tokenizer}-{generator}-{seed}.png".replace(" ", "-")
                    grid.parent.mkdir(exist_ok=True)
                    shutil.copy(ROOT / "samples/generator/grid.png", grid)
                    rows.append(row)
    finally:
        (ROOT / "params.yaml").write_text(text)
    print(table(rows))


if __name__ == "__main__":
    main()
