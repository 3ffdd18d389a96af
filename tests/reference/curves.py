"""Reference loss curves: how they are kept, and how a new one is compared with them."""

import csv
import math
from pathlib import Path

HERE = Path(__file__).parent
RECORDED = HERE / "recorded"
PRESETS = ("digits", "digits-quick", "digits-bf16")  # those that train here
TRAININGS = {
    "train_tokenizer": "tokenizer",
    "train_extractor": "extractor",
    "train_generator": "generator",
}  # folder of its curves
KEPT = ("train/loss", "train/grad_norm/", "val/loss")  # beginnings of names; bands and shares follow from these

Rows = list[dict[str, float]]  # a row: `images`, and what was logged there


def kept(name: str) -> bool:
    """Return whether a logged value is part of the reference: losses and gradient norms, not what follows from them."""
    return any(name == start or (start.endswith("/") and name.startswith(start)) for start in KEPT)


def of_stage(folder: Path) -> Rows:
    """Return what a training left in its declared curves (DVCLive's, one file a name)."""
    root = folder / "plots/metrics"
    rows: dict[int, dict[str, float]] = {}
    for path in sorted(root.rglob("*.tsv")):
        name = path.relative_to(root).with_suffix("").as_posix()
        if not kept(name):
            continue
        with path.open(newline="") as file:
            for row in csv.DictReader(file, delimiter="\t"):
                images = int(row["step"])
                rows.setdefault(images, {"images": images})[name] = float(row[path.stem])
    return [rows[images] for images in sorted(rows)]


def write(path: Path, rows: Rows) -> None:
    """Write rows as a table. `repr` of a float returns bit for bit."""
    names = sorted({name for row in rows for name in row} - {"images"})
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        table = csv.writer(file, delimiter="\t", lineterminator="\n")
        table.writerow(["images", *names])
        for row in rows:
            table.writerow([row["images"], *(repr(row[name]) if name in row else "" for name in names)])


def read(path: Path) -> Rows:
    """Return the rows that `write` wrote."""
    with path.open(newline="") as file:
        return [
            {name: int(cell) if name == "images" else float(cell) for name, cell in row.items() if cell}
            for row in csv.DictReader(file, delimiter="\t")
        ]


def differences(found: Rows, recorded: Rows) -> list[tuple[int, str, float, float]]:
    """Return where two curves differ in any bit: images, name, found, recorded; a value that is missing is a NaN."""
    pairs = []
    for row in range(max(len(found), len(recorded))):
        one = found[row] if row < len(found) else {}
        other = recorded[row] if row < len(recorded) else {}
        images = int(other.get("images", one.get("images", 0)))
        for name in sorted(one.keys() | other.keys()):
            a, b = one.get(name, math.nan), other.get(name, math.nan)
            if a != b:
                pairs.append((images, name, a, b))
    return pairs


def relative(found: float, recorded: float) -> float:
    """Return the difference of two values as a share of the recorded one; infinite where one is missing."""
    difference = abs(found - recorded) / max(abs(recorded), 1e-12)
    return math.inf if math.isnan(difference) else difference
