"""How often the intervals of scores hold the truth: the block jackknife of Fréchet and kernel distance, and Wilson's.

Features x = m + A z, z independent of mean 0 and variance 1: normal, exponential (skewed) or a mixture in which one
image of 20 is far off. So mean and covariance of what is generated are known, and with them the Fréchet distance from a
reference that is known too. The variances of A A^T fall as 1 / i, as those of networks' features do. Of the kernel
distance, which has no bias, the mean over all repetitions is the truth. `apart`: the distance is about a tenth of the
reference's variance; `equal`: what is generated has the distribution of the reference, the truth is 0.

`.venv/bin/python benchmarks/coverage.py --features 64 --images 500 2000 5000 --repetitions 200` prints a table:
bias and spread of the plain and the debiased value, mean standard error over the spread, and how often value ± 1.96
standard errors, and ± 2.26 (Student's t, 9 degrees of freedom, of 10 blocks), hold the truth. All draws are seeded.
"""

import argparse
import math
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src")]

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from darkroom.metrics.frechet import covariance_root, frechet_distance, frechet_jackknife  # noqa: E402
from darkroom.metrics.kernel import kernel_jackknife, within  # noqa: E402
from darkroom.metrics.moments import BlockMoments, Moments  # noqa: E402
from darkroom.metrics.uncertainty import Jackknife  # noqa: E402
from darkroom.report.headline import wilson  # noqa: E402

BLOCKS = 10
NORMAL, STUDENT = 1.96, 2.262
FAR, SHARE = 4.0, 1 / 20  # of the mixture: how far off, and how many

Draw = Callable[[int, int, torch.Generator], Tensor]


def _mixture(images: int, features: int, generator: torch.Generator) -> Tensor:
    """Return normal numbers of which a share of the images is FAR off in every feature, of mean 0 and variance 1."""
    off = (torch.rand(images, 1, generator=generator, dtype=torch.float64) < SHARE).double()
    plain = torch.randn(images, features, generator=generator, dtype=torch.float64)
    return (plain + FAR * (off - SHARE)) / math.sqrt(1 + FAR**2 * SHARE * (1 - SHARE))


# Each returns numbers of mean 0 and variance 1, (images, features) float64.
SHAPES: dict[str, Draw] = {
    "normal": lambda n, d, g: torch.randn(n, d, generator=g, dtype=torch.float64),
    "exponential": lambda n, d, g: -torch.rand(n, d, generator=g, dtype=torch.float64).log() - 1,
    "mixture": _mixture,
}


def correlation(shape: str, features: int) -> Tensor:
    """Return the covariance of z, (D, D): that all features of an image are off together correlates a mixture's."""
    if shape != "mixture":
        return torch.eye(features, dtype=torch.float64)
    between = FAR**2 * SHARE * (1 - SHARE)
    return (torch.eye(features, dtype=torch.float64) + between) / (1 + between)


def simulate(
    shape: str, features: int, images: int, apart: bool, repetitions: int, kernel: int
) -> tuple[float, list[Jackknife], list[Jackknife]]:
    """Return the true Fréchet distance, and jackknives of it and of the kernel distance, for as many sets of images."""
    generator = torch.Generator().manual_seed(0)
    scale = torch.arange(1, features + 1, dtype=torch.float64).rsqrt()
    noise = torch.randn(features, features, generator=generator, dtype=torch.float64) / math.sqrt(features)
    mix = torch.diag(scale)
    shift = torch.zeros(features, dtype=torch.float64)
    spread = correlation(shape, features)
    reference = Moments(0, shift.clone(), mix @ spread @ mix.T)
    root = covariance_root(reference.cov)
    real = (SHAPES[shape](kernel, features, generator) @ mix.T).float()
    if apart:
        mix = mix + 0.2 * noise * scale
        shift = 0.2 * scale * torch.randn(features, generator=generator, dtype=torch.float64)
    truth = frechet_distance(reference, root, Moments(0, shift, mix @ spread @ mix.T))
    block = torch.arange(images) * BLOCKS // images
    own = within(real) if kernel else 0.0
    frechet, kernels = [], []
    for _ in range(repetitions):
        found = shift + SHAPES[shape](images, features, generator) @ mix.T
        sums = BlockMoments(features, BLOCKS)
        sums.update(found, block)
        frechet.append(frechet_jackknife(reference, root, sums.compute()))
        if kernel:
            kernels.append(kernel_jackknife(real, own, found.float(), block))
    return truth, frechet, kernels


def row(name: str, truth: float, values: list[float], errors: list[float], plain: list[float]) -> str:
    """Return a row of the table: biases and spread over the truth's size, and how often intervals hold it."""
    spread = statistics.stdev(values)
    held = [
        sum(abs(value - truth) <= width * error for value, error in zip(values, errors, strict=True)) / len(values)
        for width in (NORMAL, STUDENT)
    ]
    bias, debiased = statistics.mean(plain) - truth, statistics.mean(values) - truth
    return (
        f"| {name} | {truth:.3g} | {bias:+.2g} | {debiased:+.2g} | {spread:.2g} | "
        f"{statistics.mean(errors) / spread:.2f} | {held[0]:.0%} | {held[1]:.0%} |"
    )


def wilson_coverage(share: float, images: int) -> float:
    """Return how often Wilson's 95% interval holds a share, exactly, over all numbers of images that may show it."""
    found = 0.0
    for count in range(images + 1):
        low, high = wilson(count / images, images)
        if low <= share <= high:
            logs = math.lgamma(images + 1) - math.lgamma(count + 1) - math.lgamma(images - count + 1)
            found += math.exp(logs + count * math.log(share) + (images - count) * math.log1p(-share))
    return found


def main() -> None:
    """Simulate, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--images", type=int, nargs="+", default=[500, 2000, 5000])
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--shapes", nargs="+", choices=tuple(SHAPES), default=list(SHAPES))
    parser.add_argument("--kernel", type=int, default=1000, help="real images of the kernel distance; 0: leave it out")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print("| score, features, images | truth | bias, plain | bias | spread | error / spread | ± 1.96 | ± 2.26 |")
    print("|---|---|---|---|---|---|---|---|")
    for shape in args.shapes:
        for apart in (True, False):
            for images in args.images:
                truth, frechet, kernels = simulate(
                    shape, args.features, images, apart, args.repetitions, args.kernel
                )  # fmt: skip
                name = f"{shape} {args.features}, {'apart' if apart else 'equal'}, {images:,}"
                values, errors = [each.debiased for each in frechet], [each.se for each in frechet]
                print(row(f"fd, {name}", truth, values, errors, [each.value for each in frechet]), flush=True)
                if kernels:
                    values, errors = [each.value for each in kernels], [each.se for each in kernels]
                    print(row(f"kid, {name}", statistics.mean(values), values, errors, values), flush=True)
    print("\n| share | images | Wilson's 95% interval holds it |")
    print("|---|---|---|")
    for share in (0.5, 0.9, 0.99, 0.999):
        for images in (128, 1000):
            print(f"| {share} | {images:,} | {wilson_coverage(share, images):.1%} |")


if __name__ == "__main__":
    main()
