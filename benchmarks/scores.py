"""Time and memory of scores, beside torchmetrics and torch-fidelity, and how exact they are.

    python benchmarks/scores.py [--images 5000] [--features 2048] [--kid 20000] [--inception 64]

Features are correlated and not negative, as those of a network. The update of a Fréchet distance takes turns with that
of torchmetrics' FrechetInceptionDistance, whose network is here the identity, in batches of 100 and 32. Inception has
random weights in the published format and takes turns with torch-fidelity's. 0 leaves a part out. Times are of the CPU.
"""

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3  # noqa: E402
from torchmetrics.image.fid import FrechetInceptionDistance  # noqa: E402

from darkroom.metrics.batches import batched  # noqa: E402
from darkroom.metrics.frechet import covariance_root, few_jackknife, frechet_distance  # noqa: E402
from darkroom.metrics.kernel import kernel_jackknife, within  # noqa: E402
from darkroom.metrics.manifold import manifold  # noqa: E402
from darkroom.metrics.moments import BlockMoments  # noqa: E402
from darkroom.metrics.reference import moments_of  # noqa: E402
from darkroom.metrics.uncertainty import assign_blocks  # noqa: E402
from darkroom.models.evaluators.inception import open_inception  # noqa: E402
from models.evaluators.weights import write_random_weights  # noqa: E402

_ROUNDS = 2


def features(images: int, width: int, seed: int) -> Tensor:
    """Return features (images, width), float32: |x M|, M random."""
    draw = torch.Generator().manual_seed(seed)
    mix = torch.randn(width, width, generator=torch.Generator().manual_seed(0)) / width**0.5
    return torch.cat(
        [(torch.randn(min(1000, images - at), width, generator=draw) @ mix).abs() for at in range(0, images, 1000)]
    )


def seconds(work: Callable[[], object]) -> float:
    """Return the CPU time of a call, of all its threads: another program's load changes it less than the clock's."""
    began = time.process_time()
    work()
    return time.process_time() - began


def turns(*works: Callable[[], object]) -> list[float]:
    """Return the median time of each of several works that take turns."""
    found = [[seconds(work) for work in works] for _ in range(_ROUNDS)]
    return [median(column) for column in zip(*found, strict=True)]


def memory(what: str) -> float:
    """Return the resident memory, VmRSS, or its peak, VmHWM, of this process in MB; Linux alone says so."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{what}:")) * 1024 / 1e6


class Identity(nn.Module):
    """In torchmetrics' place for a network: features are what comes in."""

    num_features: int

    def __init__(self, width: int) -> None:
        super().__init__()
        self.num_features = width

    def forward(self, rows: Tensor) -> Tensor:
        """Return its argument."""
        return rows


def updates(rows: Tensor, batch: int) -> None:
    """Print the time of the updates of both."""
    width = rows.shape[1]

    def ours() -> None:
        sums, block = BlockMoments(width), torch.zeros(batch, dtype=torch.int64)
        for group in rows.split(batch):
            sums.update(group, block[: len(group)])

    def theirs() -> None:
        metric = FrechetInceptionDistance(feature=Identity(width), input_img_size=(width,))
        for group in rows.split(batch):
            metric.update(group, real=True)

    one, other = turns(ours, theirs)
    print(f"update at batch {batch}: {one:.2f} s, torchmetrics {other:.2f} s, {other / one:.1f} times")


def distances(rows: Tensor, others: Tensor) -> None:
    """Print the time of a distance, in both forms, and how far they lie from an independent one."""
    real, made = moments_of(rows), moments_of(others)
    rooted = seconds(lambda: covariance_root(real.cov))
    root = covariance_root(real.cov)
    print(f"root of the reference: {rooted:.2f} s, once; a distance with it: ", end="")
    print(f"{turns(lambda: frechet_distance(real, root, made))[0]:.2f} s")
    product = np.linalg.eigvals(real.cov.numpy() @ made.cov.numpy())
    expected = float((real.mean - made.mean).square().sum() + real.cov.trace() + made.cov.trace())
    expected -= 2 * float(np.sqrt(np.clip(product.real, 0, None)).sum())
    found = frechet_distance(real, root, made)
    print(f"relative to the eigenvalues of the product: {abs(found / expected - 1):.1e}")
    few = others[: max(20, others.shape[1] // 4)]
    block = assign_blocks(len(few), 10)
    print(f"{len(few)} samples, the small form with its jackknife: ", end="")
    print(f"{seconds(lambda: few_jackknife(real, root, few, block)):.2f} s")


def kernels(count: int, width: int) -> None:
    """Print time and memory of a full kernel distance, and of the neighbours."""
    real, made = features(count, width, 1), features(count, width, 2)
    block = assign_blocks(count, 10)
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    took = seconds(lambda: kernel_jackknife(real, within(real), made, block))
    held = 2 * count * width * 4 / 1e6
    print(f"KID, all pairs of {count} and {count}: {took:.1f} s", end="")
    print(f", {memory('VmHWM') - before:.0f} MB beside {held:.0f} MB of features")
    few = min(count, 5000)
    took = seconds(lambda: manifold(made[:few], real[:few]))
    print(f"precision, recall, density, coverage of {few} and {few}: {took:.1f} s")


def inception(images: int) -> None:
    """Print the images a second of both."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_random_weights(Path(folder) / "weights.pth")
        ours, _ = open_inception(path, None)
        theirs = FeatureExtractorInceptionV3("inception-v3-compat", ["2048"], feature_extractor_weights_path=str(path))
    pixels = torch.randint(0, 256, (images, 3, 32, 32), dtype=torch.uint8)
    batch = min(32, images)

    def mine() -> None:
        list(batched(ours.outputs, [pixels], batch, torch.device("cpu")))

    def other() -> None:
        with torch.no_grad():
            for group in pixels.split(batch):
                theirs(group)

    one, two = turns(mine, other)
    print(f"Inception: {images / one:.2f} images/s with sFID's features and logits, torch-fidelity {images / two:.2f}")


def main() -> None:
    """Print one line a measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--features", type=int, default=2048)
    parser.add_argument("--kid", type=int, default=20000)
    parser.add_argument("--inception", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(given.threads)
    if given.kid:
        kernels(given.kid, given.features)
    rows = features(given.images, given.features, 1)
    for batch in (100, 32):
        updates(rows, batch)
    distances(rows, features(given.images, given.features, 2) * 1.05)
    if given.inception:
        inception(given.inception)


if __name__ == "__main__":
    main()
