"""Objective × solver × steps: what each training scores, with errors over training seeds.

Run it in a clone whose data are at hand (for scenes, `darkroom preset shapes` and `shapes.kinds: [position]`):
`.venv/bin/python benchmarks/objectives.py --images 76800 --seeds 3 --out table.tsv`. The Gaussian diffusion of DiT's
paper (hybrid loss, learned range, linear schedule) is trained on --more times the images. Each row is a `dvc repro
score_generator` with other parameters, so that DVC's cache keeps what is trained; rows that --out holds already are not
repeated. params.yaml is set back at the end. Prints mean and standard deviation over the seeds as a Markdown table.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = ("fd", "fd_se", "kid", "label_accuracy")
HYBRID = {
    "objective": "gaussian", "schedule": "linear", "target": "eps", "variance": "learned_range", "bound_weight": 1.0,
}  # fmt: skip


def samplings(hybrid: bool, guidance: float) -> dict[str, dict[str, Any]]:
    """Return the samplings of an objective by name, with this guidance where the name says no other."""
    base = {"guidance": guidance}
    if hybrid:
        return {
            "DDPM 250": {**base, "solver": "ddpm", "steps": 250, "spacing": "linspace"},
            "DDIM 50": {**base, "solver": "ddim", "steps": 50},
            "DPM-Solver++ 20": {**base, "solver": "dpm", "steps": 20},
        }
    return {
        **{f"Euler {n}": {**base, "solver": "euler", "steps": n} for n in (10, 20, 50)},
        **{f"DPM-Solver++ {n}": {**base, "solver": "dpm", "steps": n} for n in (10, 20, 50)},
        "Heun 10 (20 calls)": {**base, "solver": "heun", "steps": 10},
        "DPM-Solver++ 20, no guidance": {"solver": "dpm", "steps": 20, "guidance": 1.0},
        "DPM-Solver++ 20, interval 0.2 to 0.8": {
            **base, "solver": "dpm", "steps": 20, "guidance_from": 0.2, "guidance_to": 0.8,
        },
    }  # fmt: skip


def repro(yaml: YAML, text: str, changes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Run `dvc repro score_generator` with sections changed, and return its scores."""
    params = yaml.load(text)
    for path, values in changes.items():
        section = params
        for name in path.split("."):
            if section.get(name) is None:
                section[name] = {}
            section = section[name]
        section.update(values)
    with (ROOT / "params.yaml").open("w") as file:
        yaml.dump(params, file)
    done = subprocess.run(["dvc", "repro", "--quiet", "score_generator"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:] + done.stdout[-2000:])
    scores: dict[str, Any] = json.loads((ROOT / "metrics/generator.json").read_text())
    return scores


def main() -> None:
    """Train and score what --out does not hold yet; print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=76800, help="images of a training of flow matching")
    parser.add_argument("--more", type=int, default=4, help="times as many for Gaussian diffusion")
    parser.add_argument("--batch", type=int, help="of flow matching, images in an optimizer step; as in params.yaml")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--guidance", type=float, default=1.5, help="the scale; 1.5 is that of the paper's scores")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True, help="a table with a row for each training and sampling")
    args = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    yaml = YAML()
    text = (ROOT / "params.yaml").read_text()
    rows = [line.split("\t") for line in args.out.read_text().splitlines()] if args.out.exists() else []
    known = {tuple(row[:3]) for row in rows}
    try:
        for seed in range(args.seeds):
            for hybrid in (False, True):
                images = args.images * (args.more if hybrid else 1)
                name = f"hybrid, {images} images" if hybrid else f"flow, {images} images"
                training: dict[str, Any] = {
                    "seed": seed, "images": images, "warmup": images // 10, "threads": args.threads,
                }  # fmt: skip
                if args.batch and not hybrid:
                    training["batch"], name = args.batch, f"{name}, batch {args.batch}"
                for how, keys in samplings(hybrid, args.guidance).items():
                    if (name, str(seed), how) in known:
                        continue
                    scores = repro(yaml, text, {
                        "train_generator.training": training,
                        "train_generator.dit.diffusion": HYBRID if hybrid else {},
                        "train_generator.dit.sampling": {"solver": "ddim", "steps": 25} if hybrid else {},
                        "sample_generator.common": {"threads": args.threads, "labels": "balanced"},
                        "sample_generator.dit": keys,
                    })  # fmt: skip
                    row = [
                        name,
                        str(seed),
                        how,
                        *(str(scores[key]) for key in ("fd", "fd_se", "kid", "label_accuracy")),
                    ]
                    with args.out.open("a") as file:
                        file.write("\t".join(row) + "\n")
                    rows.append(row)
    finally:
        (ROOT / "params.yaml").write_text(text)
    print("| training | sampling | seeds | fd | error in a run | kid | label accuracy |")
    print("|---|---|---|---|---|---|---|")
    for name, how in dict.fromkeys((row[0], row[2]) for row in rows):
        of_it = [[float(value) for value in row[3:]] for row in rows if (row[0], row[2]) == (name, how)]
        fd, error, kid, accuracy = zip(*of_it, strict=True)
        spread = f" ± {statistics.stdev(fd):.2f}" if len(fd) > 1 else ""
        print(
            f"| {name} | {how} | {len(fd)} | {statistics.mean(fd):.2f}{spread} | {statistics.mean(error):.2f} "
            f"| {statistics.mean(kid):.3f} | {statistics.mean(accuracy):.3f} |"
        )


if __name__ == "__main__":
    main()
