"""What real images score that are asked for as generated ones are: first in key order, drawn, balanced, all.

Run it in a clone whose `reference_stats` is done, on data of any classes (`dvc repro reference_stats`; 10,000 held-out
images at most are read): `.venv/bin/python benchmarks/real_images.py [--trials 50]`. In each trial half of the held-out
images, drawn, take the place of generated ones, and the noise floor is that of the other half, of the same number and
classes. z = (score - floor) / sqrt(se² + se²) has mean 0 where nothing is wrong, and a deviation of 1 to 1.4: what one
half has more of, the other lacks, so that two halves differ by up to 1.4 times what two independent sets would. Beside
it stands what the same images get against all classes of the reference, as many of each as there are.

Then `darkroom compare` judges two models, better and worse by construction: the worse one shows the same images, half
of them with noise of `--noise` grey levels, seen through `models/extractor`. Prints Markdown.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src")]

import numpy as np  # noqa: E402
import torch  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

from darkroom.data.catalog import load_catalog  # noqa: E402
from darkroom.data.draw import drawn  # noqa: E402
from darkroom.data.reader import ImageShards  # noqa: E402
from darkroom.metrics.baselines import noise_floor  # noqa: E402
from darkroom.metrics.cards import score_card  # noqa: E402
from darkroom.metrics.matching import BALANCED, FREQUENCY, Distribution, count_classes  # noqa: E402
from darkroom.metrics.measure import distances  # noqa: E402
from darkroom.metrics.reference import Reference  # noqa: E402
from darkroom.models.evaluators.load import Evaluator, extract, open_evaluator  # noqa: E402
from darkroom.tools.compare.revisions import Results  # noqa: E402
from darkroom.tools.compare.verdicts import compare  # noqa: E402

WAYS = ("first 128", "128 drawn", "balanced", "all")
BLOCKS = 10
JUDGED = ("fd", "fd_debiased", "kid", "label_accuracy")


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
        floor = noise_floor(others, matched, distribution, labels, BLOCKS)
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


def noised(pixels: NDArray[np.uint8], noise: float, seed: int) -> NDArray[np.uint8]:
    """Return images (N, C, H, W), half of them, drawn, with normal noise."""
    draws = np.random.default_rng(seed)
    found = pixels.astype(float)
    half = draws.permutation(len(found))[: len(found) // 2]
    found[half] += draws.normal(0, noise, found[half].shape)
    return found.round().clip(0, 255).astype(np.uint8)


def judged(
    way: str, reference: Reference, judge: Evaluator, pixels: NDArray[np.uint8], noise: float, trial: int
) -> dict[str, str]:
    """Return what `darkroom compare` says of each score of the better model."""
    assert reference.unseen is not None and reference.unseen_labels is not None
    mixed = drawn(len(reference.unseen), seed=trial)
    rows, distribution = asked(way, mixed[: len(mixed) // 2], reference, 1000)
    if len(rows) < 2 * BLOCKS:
        return {}
    labels, matched = reference.unseen_labels[rows], reference.matched(distribution)
    worse = extract(judge.network, [noised(pixels[rows], noise, trial)], 64, torch.device("cpu"))
    runs = []
    for name, features in (("worse", worse), ("better", reference.unseen[rows])):
        with torch.no_grad():
            right = (judge.network.logits(features).argmax(1) == labels).double().mean().item()
        scores = distances(features, matched, BLOCKS, labels) | {"label_accuracy": right, "n": float(len(rows))}
        card = score_card(
            scores=scores,
            extractors={"in_domain": {"sha256": judge.sha256, "dim": features.shape[1], "n": reference.n, "kid_n": 0}},
            reference_id="",
            reference_split="train",
            n_fake=len(rows),
            classes=distribution,
            blocks=BLOCKS,
        )
        runs.append(Results(name, {"generator": scores}, {"generator": card}))
    return {row.name: row.verdict.split(",")[0].split(" by")[0] for row in compare(*runs)}


def print_verdicts(reference: Reference, trials: int, noise: float) -> None:
    """Print how often the better model is called better, the same, and worse, by each score."""
    catalog = load_catalog()
    judge = open_evaluator(Path("models/extractor"), catalog.image_shape)
    assert reference.unseen is not None
    shards = ImageShards.open_parts(list(catalog.parts), "test")
    if len(shards) != len(reference.unseen):
        raise SystemExit(f"the test split has {len(shards):,} images, of which the reference keeps a draw: too many.")
    pixels = np.concatenate(list(shards.batches(500)))
    print(f"\n| asked for | {' | '.join(f'`{name}`' for name in JUDGED)} |\n|---|{'---|' * len(JUDGED)}")
    for way in WAYS:
        found: dict[str, Counter[str]] = {name: Counter() for name in JUDGED}
        for trial in range(trials):
            for name, verdict in judged(way, reference, judge, pixels, noise, trial).items():
                found[name][verdict] += 1
        print(
            f"| {way} |",
            " | ".join(", ".join(f"{c} {v}" for v, c in each.most_common()) for each in found.values()),
            "|",
        )


def main() -> None:
    """Print the classes, a row for each way, and the verdicts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", type=Path, default=Path("data/reference"))
    parser.add_argument("--extractor", default="in_domain")
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--noise", type=float, default=60.0, help="grey levels; 0: no verdicts")
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
    if args.noise and args.extractor == "in_domain":
        print_verdicts(reference, args.trials, args.noise)


if __name__ == "__main__":
    main()
