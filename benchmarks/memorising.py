"""A generator that saw few images far too often, beside one that saw many as often in all.

Run it in a clone with `darkroom preset digits`: `.venv/bin/python benchmarks/memorising.py --out table.tsv`. For each
number of training images it sets `ingest.splits` so that so many of the 1,797 digits are trained on and, of the others,
all but 90 are held out (1,440 is the preset as it is), runs `dvc repro score_generator`, and prints what it says of
copies. The training takes --images in all, whatever their number. Rows that --out holds already are not repeated;
params.yaml is set back at the end.
"""

import argparse
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

from objectives import ROOT, repro
from ruamel.yaml import YAML

DIGITS, VALIDATED = 1797, 90
WHOLE = 1440  # training images of the preset as it is
NAMES = (
    *("times_seen", "fd", "fd_se", "copies_pixels", "copies_moved", "copies_features"),
    *("ct_pixels", "ct_moved", "ct_features", "kid_gap", "kid_gap_se"),
)


def changes(count: int, images: int, threads: int) -> dict[str, dict[str, Any]]:
    """Return the changed sections of a run that trains on `count` images and sees `images` in all."""
    train, val = round(count / DIGITS, 4), round(VALIDATED / DIGITS, 4)
    splits = {"train": train, "val": val, "test": round(1 - train - val, 4)}
    return {
        **({} if count == WHOLE else {"ingest.splits": splits}),
        "train_generator.training": {"images": images, "warmup": images // 10, "threads": threads},
        "sample_generator.common": {"threads": threads},
    }


def measure(yaml: YAML, text: str, changed: dict[str, dict[str, Any]]) -> tuple[dict[str, float], int]:
    """Run the DAG with sections changed; return scores, those of held-out images as NAME_floor, and train's size."""
    scores = repro(yaml, text, changed)
    nearest = json.loads((ROOT / "samples/nearest/generator/manifest.json").read_text())
    return {name: scores.get(name, math.nan) for name in NAMES} | {
        f"{name}_floor": value for name, value in nearest["floor"].items() if name in NAMES
    }, nearest["train"]


def main() -> None:
    """Run what --out does not hold yet; print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=76800, help="images that a training sees in all")
    parser.add_argument("--trained-on", type=int, nargs="+", default=[100, WHOLE], help="numbers of training images")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="a table with a row for each training")
    args = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    yaml = YAML()
    yaml.width = 200
    text = (ROOT / "params.yaml").read_text()
    rows = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    try:
        for count in args.trained_on:
            if any((row["count"], row["images"]) == (count, args.images) for row in rows):
                continue
            scores, train = measure(yaml, text, changes(count, args.images, args.threads))
            rows.append({"count": count, "images": args.images, "train": train, **scores})
            with args.out.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    finally:
        (ROOT / "params.yaml").write_text(text)
    heads = ["training images", "each seen", "fd", *(name.replace("_", ", ", 1) for name in NAMES[3:-2]), "kid gap"]
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    for row in rows:
        for floor in ("", "_floor"):
            shares = [f"{row[f'{name}{floor}']:.1%}" for name in NAMES[3:6]]
            tests = [f"{row[f'{name}{floor}']:.1f}" for name in NAMES[6:9]]
            fd = "" if floor else f"{row['fd']:.2f} ± {row['fd_se']:.2f}"
            gap = f"{row.get(f'kid_gap{floor}', 0):.2f}"
            first = [f"{row['train']:,}", f"{row['times_seen']:.0f}"] if not floor else ["held-out images", ""]
            print(f"| {' | '.join([*first, fd, *shares, *tests, gap])} |")


if __name__ == "__main__":
    main()
