"""Each recipe beside the settings without it: scores on whatever data params.yaml names, over training seeds.

Run it in a clone that `darkroom init` or `darkroom preset` has set up: `.venv/bin/python benchmarks/recipes.py
generator --seeds 3 --out generator.jsonl`; some recipes by `--recipes "as it is" "8 latent channels"`. A recipe is a
few keys of params.yaml; each is trained and scored by `dvc repro`, so that only what depends on the keys runs. A recipe
that is not valid there, or changes nothing, is left out. Rows that --out holds already are not repeated. params.yaml is
set back at the end. Prints a Markdown table: the mean, and the standard error over the seeds; of one seed the error of
the score itself.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from darkroom.check.check import completed
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.yaml_text import parse_yaml
from darkroom.tools.init.proposal import TRAININGS


class Factor(float):
    """Times what params.yaml says; lengths are whole batches."""


class Half(str):
    """Images of half the training of a stage."""


ROOT = Path(__file__).resolve().parents[1]
DIT, UNET = "train_generator.dit", "train_decoder.unets.base"
MODERN: dict[str, Any] = {"norm": "rms", "mlp": "swiglu", "rope": True, "qk_norm": True}
# Those of the tokenizer, which its own scores and those of a generator on its latents judge.
LATENTS: dict[str, dict[str, dict[str, Any]]] = {
    "perceptual loss by the teacher": {"train_tokenizer.kl.perceptual": {"network": "teacher", "weight": 0.1}},
    "discriminator from the middle": {
        "train_tokenizer.kl.adversarial": {"weight": 0.1, "start": Half("train_tokenizer")}
    },
    "perceptual loss and discriminator": {
        "train_tokenizer.kl.perceptual": {"network": "teacher", "weight": 0.1},
        "train_tokenizer.kl.adversarial": {"weight": 0.1, "start": Half("train_tokenizer")},
    },
    "8 latent channels": {"train_tokenizer.kl": {"latent_channels": 8}},
    "down-sampling by 8, 16 latent channels": {
        "train_tokenizer.kl": {"patch": 1, "channels": [32, 64, 64, 64], "latent_channels": 16},
        f"{DIT}.model": {"patch": 1},
    },
}
# What reads the captions: a text encoder that is trained with the generator, or CLIP before it.
_CLIP: dict[str, dict[str, Any]] = {
    "train_clip": {"source": "trained", "long_captions": "truncate"},
    "train_clip.training": {"images": 48_000, "batch": 96, "warmup": 4800, "optimizer": "muon"},
}
CAPTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "captions": {
        "train_generator": {"captions": "data/shards", "embeddings": "data/none"},
        f"{DIT}.model": {"condition": "caption"},
    },
    "captions by the embedding of CLIP": {
        **_CLIP,
        "train_generator": {"captions": "data/none", "embeddings": "data/embeddings"},
        f"{DIT}.model": {"condition": "text", "context_length": None},
        f"{DIT}.diffusion": {"word_dropout": 0.05},
    },
    "captions by the tokens of CLIP": {
        **_CLIP,
        "embed_clip": {"encodings": True},
        "train_generator": {"captions": "data/none", "embeddings": "data/embeddings"},
        f"{DIT}.model": {"condition": "tokens", "context_length": None},
        f"{DIT}.diffusion": {"word_dropout": 0.05},
    },
}
# Keys by the section that they stand in, by recipe, by what is trained.
RECIPES: dict[str, dict[str, dict[str, dict[str, Any]]]] = {
    "tokenizer": {
        "as it is": {},
        "AdamW": {"train_tokenizer.training": {"optimizer": "adamw"}},
        "half the images": {"train_tokenizer.training": {"images": Factor(0.5)}},
        "twice the images": {"train_tokenizer.training": {"images": Factor(2.0)}},
        "wsd": {"train_tokenizer.training": {"schedule": "wsd"}},
        "twice the learning rate": {"train_tokenizer.training": {"learning_rate": Factor(2.0)}},
        "half the batch": {"train_tokenizer.training": {"batch": Factor(0.5)}},
        "bf16": {"train_tokenizer.training": {"precision": "bf16"}},
        **LATENTS,
    },
    "generator": {
        "as it is": {},
        "AdamW": {"train_generator.training": {"optimizer": "adamw"}},
        "Muon": {"train_generator.training": {"optimizer": "muon"}},
        "Muon in chunks": {"train_generator.training": {"optimizer": "muon", "muon_chunks": True}},
        "half the images": {"train_generator.training": {"images": Factor(0.5)}},
        "twice the images": {"train_generator.training": {"images": Factor(2.0)}},
        "modern block": {f"{DIT}.model": MODERN},
        "modern block and Muon in chunks": {
            "train_generator.training": {"optimizer": "muon", "muon_chunks": True},
            f"{DIT}.model": MODERN,
        },
        "dropout 0.1": {f"{DIT}.model": {"dropout": 0.1}},
        "dropout 0.2": {f"{DIT}.model": {"dropout": 0.2}},
        "four times the images": {"train_generator.training": {"images": Factor(4.0)}},
        "four times the images with word dropout 0.2": {
            "train_generator.training": {"images": Factor(4.0)},
            f"{DIT}.diffusion": {"word_dropout": 0.2},
        },
        "word dropout 0.2": {f"{DIT}.diffusion": {"word_dropout": 0.2}},
        "word dropout 0.4": {f"{DIT}.diffusion": {"word_dropout": 0.4}},
        "both dropouts 0.2": {f"{DIT}.diffusion": {"word_dropout": 0.2}, f"{DIT}.model": {"dropout": 0.2}},
        "patch 1": {f"{DIT}.model": {"patch": 1}},
        "time shift 2": {f"{DIT}.diffusion": {"time_shift": 2.0}},
        "time shift 3": {f"{DIT}.diffusion": {"time_shift": 3.0}},
        "one cycle": {"train_generator.training": {"schedule": "one_cycle"}},
        "no time shift": {f"{DIT}.diffusion": {"time_shift": 1.0}},
        "wsd": {"train_generator.training": {"schedule": "wsd"}},
        "wsd with time shift 2": {
            "train_generator.training": {"schedule": "wsd"},
            f"{DIT}.diffusion": {"time_shift": 2.0},
        },
        "wsd with time shift 2 and twice the learning rate": {
            "train_generator.training": {"schedule": "wsd", "learning_rate": Factor(2.0)},
            f"{DIT}.diffusion": {"time_shift": 2.0},
        },
        "half the learning rate": {"train_generator.training": {"learning_rate": Factor(0.5)}},
        "twice the learning rate": {"train_generator.training": {"learning_rate": Factor(2.0)}},
        "four times the learning rate": {"train_generator.training": {"learning_rate": Factor(4.0)}},
        "pixels without a tokenizer": {
            "train_tokenizer": {"kind": "identity"},
            f"{DIT}.model": {"patch": 4, "patch_bottleneck": 32},
            f"{DIT}.diffusion": {"flow_target": "x0", "flow_weight": "velocity_clamped"}
            | {"time_mean": 0.8, "time_std": 0.8, "normalise": "fixed", "latent_scale": 1.0},
        },
        "no guidance": {"sample_generator.dit": {"guidance": 1.0}},
        "guidance 1.5": {"sample_generator.dit": {"guidance": 1.5}},
        "guidance 2.5": {"sample_generator.dit": {"guidance": 2.5}},
        "guidance 4": {"sample_generator.dit": {"guidance": 4.0}},
        "guidance in times 0.2 to 0.8": {"sample_generator.dit": {"guidance_from": 0.2, "guidance_to": 0.8}},
        "guidance 2.5 in times 0.2 to 0.8": {
            "sample_generator.dit": {"guidance": 2.5, "guidance_from": 0.2, "guidance_to": 0.8}
        },
        **LATENTS,
        **CAPTIONS,
    },
    "text": {
        "as it is": {},
        "half the images": {"train_decoder.training": {"images": Factor(0.5)}},
        "dropout 0.1": {f"{UNET}.model": {"dropout": 0.1}},
        "embedding noise 0.5": {f"{UNET}.diffusion": {"embedding_noise": 0.5}},
        "both": {f"{UNET}.model": {"dropout": 0.1}, f"{UNET}.diffusion": {"embedding_noise": 0.5}},
        "CLIP by half the images": {"train_clip.training": {"images": Factor(0.5)}},
    },
}
TRAINED = {"tokenizer": "train_tokenizer", "generator": "train_generator", "text": "train_decoder"}
SCORES = {
    "tokenizer": ("psnr", "ssim", "rfd"),
    "generator": ("fd_debiased", "kid", "label_accuracy", "recall"),
    "text": ("fd_debiased", "kid", "label_accuracy", "psnr", "clip_image"),
}
_LENGTHS = ("images", "warmup")


def section_of(params: Any, path: str) -> Any:
    """Return a section, made where it is missing."""
    for name in path.split("."):
        if params.get(name) is None:
            params[name] = {}
        params = params[name]
    return params


def of_training(section: Any, key: str, stage: str) -> Any:
    """Return a key of a stage's `training`, its default where it does not stand there."""
    return section[key] if key in section else getattr(TRAININGS[stage], key)


def changed(params: Any, changes: dict[str, dict[str, Any]], seed: int, trained: str) -> Any:
    """Lay the keys of a recipe over the parameters; a factor of `images` is one of the warm-up, too."""
    for path, values in changes.items():
        section, stage = section_of(params, path), path.partition(".")[0]
        for key, value in values.items():
            if key == "images" and isinstance(value, Factor):
                batch = of_training(section, "batch", stage)
                for name in _LENGTHS:
                    section[name] = round(of_training(section, name, stage) * value / batch) * batch
            elif isinstance(value, Factor):
                before = of_training(section, key, stage)
                section[key] = int(before * value) if isinstance(before, int) else float(before * value)
            elif isinstance(value, Half):
                section[key] = of_training(section_of(params, f"{value}.training"), "images", value) // 2
            else:
                section[key] = value
    section_of(params, f"{trained}.training")["seed"] = seed
    return params


def refusal() -> str:
    """Return why params.yaml is not valid, as where a recipe is of captions and there are none; "": it is."""
    done = subprocess.run(["darkroom", "check"], cwd=ROOT, capture_output=True, text=True)
    if not done.returncode:
        return ""
    return done.stderr.strip() or done.stdout.strip() or f"`darkroom check` ended with status {done.returncode}"


def changes_nothing(text: str, changes: dict[str, dict[str, Any]], trained: str) -> bool:
    """Return whether params.yaml, with its defaults, sets the keys of a recipe as the recipe does."""
    try:
        before, after = (completed(changed(parse_yaml(text, PARAMS), keys, 0, trained)) for keys in ({}, changes))
    except DarkroomError:  # one of them is not valid, so they differ
        return False
    return before == after


def repro(target: str, *others: str) -> dict[str, Any]:
    """Run what scores depend on, and return them; those of others with their names before."""
    targets = [f"score_{name}" for name in (target, *others)]
    done = subprocess.run(["dvc", "repro", "--quiet", *targets], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:] + done.stdout[-2000:])
    scores: dict[str, Any] = json.loads((ROOT / f"metrics/{target}.json").read_text())
    for name in others:
        found = json.loads((ROOT / f"metrics/{name}.json").read_text())
        scores |= {f"{name}_{key}": value for key, value in found.items()}
    return scores


def table(rows: list[dict[str, Any]], names: tuple[str, ...]) -> str:
    """Return the rows of equal recipes as one, with mean and standard error over the seeds."""
    lines = [f"| recipe | seeds | {' | '.join(names)} |", f"|---|---|{'---|' * len(names)}"]
    for recipe in dict.fromkeys(row["recipe"] for row in rows):
        of_it = [row for row in rows if row["recipe"] == recipe]
        cells = []
        for name in names:
            values = [row[name] for row in of_it if name in row]
            if not values:
                cells.append("")
                continue
            spread = (
                statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else of_it[0].get(f"{name}_se")
            )
            cells.append(f"{statistics.mean(values):.3g}" + (f" ± {spread:.2g}" if spread is not None else ""))
        lines.append(f"| {recipe} | {len(of_it)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Train and score what --out does not hold yet; print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=RECIPES, help="what is trained and scored")
    parser.add_argument("--recipes", nargs="+", metavar="RECIPE", help="some of them; all")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one for each training")
    args = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    recipes, trained = RECIPES[args.target], TRAINED[args.target]
    chosen = args.recipes or list(recipes)
    if unknown := [recipe for recipe in chosen if recipe not in recipes]:
        raise SystemExit(f"no such recipe: {'; '.join(unknown)}; there are: {'; '.join(recipes)}.")
    yaml = YAML()
    text = (ROOT / "params.yaml").read_text()
    idle = [name for name in chosen if recipes[name] and changes_nothing(text, recipes[name], trained)]
    for name in idle:
        print(f"{name} is left out: it changes nothing, as params.yaml sets the same.", file=sys.stderr)
    chosen = [name for name in chosen if name not in idle]
    rows = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    known = {(row["recipe"], row["seed"]) for row in rows}
    try:
        for seed in range(args.seeds):
            for recipe in chosen:
                if (recipe, seed) in known:
                    continue
                params = changed(yaml.load(text), recipes[recipe], seed, trained)
                with (ROOT / "params.yaml").open("w") as file:
                    yaml.dump(params, file)
                if refused := refusal():
                    print(f"{recipe} is left out: {refused}", file=sys.stderr)
                    continue
                others = ["tokenizer"] if args.target == "generator" and recipe in LATENTS else []
                row = {"recipe": recipe, "seed": seed, **repro(args.target, *others)}
                with args.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                rows.append(row)
    finally:
        (ROOT / "params.yaml").write_text(text)
    print(table([row for row in rows if row["recipe"] in chosen], SCORES[args.target]))


if __name__ == "__main__":
    main()
