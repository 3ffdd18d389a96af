"""What real images score that are asked for as generated ones are: first in key order, drawn, balanced, all.

Run it in a clone whose `reference_stats` is done, on data of any classes (`dvc repro reference_stats`; 10,000 held-out
images at most are read): `.venv/bin/python benchmarks/real_images.py [--trials 50]`. In each trial half of the held-out
images, drawn, take the place of generated ones, and the noise floor is that of the other half, of the same number and
classes. z = (score - floor) / sqrt(se² + se²) has mean 0 where nothing is wrong, and a deviation of 1 to 1.4: what one
half has more of, the other lacks, so that two halves differ by up to 1.4 times what two independent sets would. Beside
it stands what the same images get against all classes of the reference, as many of each as there are. Prints Markdown.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src")]

import numpy as np  # noqa: E402
import torch  # noqa: E402

from darkroom.data.draw import drawn  # noqa: E402
from darkroom.metrics.floor import distances_of_unseen  # noqa: E402
from darkroom.metrics.matching import BALANCED, FREQUENCY, Distribution, count_classes  # noqa: E402
from darkroom.metrics.reference import Reference, distances  # noqa: E402

WAYS = ("first 128", "128 drawn", "balanced", "all")
BLOCKS = 10


def asked(way: str, rows: list[int], reference: Reference, most: int) -> tuple[list[int], Distribution]:
    """Return which of some rows of held-out images are asked for, and with which distribution of classes."""
    assert reference.unseen_labels is not None
    labels = reference.unseen_labels[rows]
    if way == "first 128":
        rows = sorted(rows)[:128]
        counts = count_classes(reference.unseen_labels[rows], len(reference.classes))
        return rows, {name: count for name, count in zip(reference.classes, counts.tolist(), strict=True) if count}
    if way == "balanced":
        each = [np.flatnonzero(labels.numpy() == number)[:most].tolist() for number in range(len(reference.classes))]
        least = min((len(found) for found in each if found), default=0)
        return [rows[place] for found in each for place in found[: max(2, least)]], BALANCED
    return (rows[:128] if way == "128 drawn" else rows), FREQUENCY


def trials(reference: Reference, way: str, count: int) -> Iterator[dict[str, float]]:
    """Yield what each trial scores, what the floor is, and how far apart they are."""
    assert reference.unseen is not None and reference.unseen_labels is not None
    for trial in range(count):
        mixed = drawn(len(reference.unseen), seed=trial)
        half = len(mixed) // 2
        rows, distribution = asked(way, mixed[:half], reference, 1000)
        if len(rows) < 2 * BLOCKS:
            continue
        labels = reference.unseen_labels[rows]
        rest = sorted(mixed[half:])
        others = replace(reference, unseen=reference.unseen[rest], unseen_labels=reference.unseen_labels[rest])
        matched = reference.matched(distribution)
        by_chance = way == "all"  # more than the other half has of a class: how many are of it is chance on both sides
        found = distances(reference.unseen[rows], matched, BLOCKS, None if by_chance else labels)
        floor = distances_of_unseen(others, matched, distribution, labels, BLOCKS)
        plain = distances(reference.unseen[rows], reference, BLOCKS)
        if floor:
            z = {
                f"z_{name}": (found[name] - floor[name]) / np.hypot(found[f"{kind}_se"], floor[f"{kind}_se"])
                for name, kind in (("fd_debiased", "fd"), ("kid", "kid"))
            }
            yield {
                "n": len(rows),
                "fd": found["fd_debiased"],
                "floor": floor["fd_debiased"],
                "n_floor": floor["n"],
                "plain": plain["fd_debiased"],
                **z,
            }


def main() -> None:
    """Print the classes, and a row for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", type=Path, default=Path("data/reference"))
    parser.add_argument("--extractor", default="in_domain")
    parser.add_argument("--trials", type=int, default=50)
    args = parser.parse_args()
    torch.set_num_threads(1)
    reference = Reference.load(args.reference, args.extractor)
    if reference.unseen is None or reference.unseen_labels is None:
        raise SystemExit(f"{args.reference} holds no held-out images: run `dvc repro reference_stats`.")
    counts = count_classes(reference.unseen_labels, len(reference.classes)).tolist()
    print(
        f"{len(reference.unseen):,} held-out images:", ", ".join(map("{} {}".format, counts, reference.classes)), "\n"
    )
    print(
        "| asked for | images | `fd_debiased` | floor, its images | z of fd, of kid | beyond 2 | against all classes |"
    )
    print("|---|---|---|---|---|---|---|")
    for way in WAYS:
        found = list(trials(reference, way, args.trials))
        if not found:
            print(f"| {way} | too few for {BLOCKS} blocks | | | | | |")
            continue
        table = {name: np.array([each[name] for each in found]) for name in found[0]}
        z = np.stack([table["z_fd_debiased"], table["z_kid"]])
        print(
            f"| {way} | {table['n'].mean():.0f} | {table['fd'].mean():.2f} ± {table['fd'].std():.2f} "
            f"| {table['floor'].mean():.2f} ± {table['floor'].std():.2f}, {table['n_floor'].mean():.0f} "
            f"| {z[0].mean():+.2f} ± {z[0].std():.2f}, {z[1].mean():+.2f} ± {z[1].std():.2f} "
            f"| {(np.abs(z) > 2).mean():.0%} | {table['plain'].mean():.2f} |"
        )


if __name__ == "__main__":
    main()
