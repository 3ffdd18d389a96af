"""Sampling codes of `vq_ar` with the cache of keys and values and without it, in one run.

    PYTHONPATH=src python benchmarks/ar_sampling.py

An untrained network of the default's shape, the same noise in both; rounds take turns, and the fastest of each counts.
With the cache the time of an image grows with its codes; without it with their square at least, since each code sees
all before it computed again. The codes are compared, too: where they differ, it ends with exit code 1 and says so.
"""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from darkroom.models.tokenizers.vq_ar.generate import sample_codes
from darkroom.models.tokenizers.vq_ar.network import VQARConfig, VQAutoregressive
from darkroom.terminal.numbers import aligned


@dataclass(frozen=True)
class Choice:
    """How codes are chosen."""

    images: int
    batch: int
    seed: int = 0
    min_p: float = 0.05
    temperature: float = 1.0
    guidance: float = 1.0


def network(tokens: int, width: int, depth: int) -> VQAutoregressive:
    """Return an untrained network of so many codes an image, with predictions that differ."""
    torch.manual_seed(0)
    model = VQAutoregressive(
        VQARConfig(
            image_channels=3,
            image_size=4 * int(tokens**0.5),
            patch=4,
            dim=width,
            encoder_hidden=None,
            codebook_dim=16,
            codebook_size=256,
            decay=0.95,
            dead_below=0.0,
            depth=depth,
            heads=width // 32,
            head_dim=32,
            dropout=0.0,
            logit_scale=1.0,
            classes=0,
        )
    )
    with torch.no_grad():
        model.to_prediction.weight.mul_(20)
        model.quantiser.codebook = 3 * torch.randn(256, 16)
    return model.eval()


def seconds(function: Callable[[], Tensor]) -> tuple[float, Tensor]:
    """Return the seconds that a call takes, and its result."""
    began = time.perf_counter()
    result = function()
    return time.perf_counter() - began, result


def main() -> None:
    """Print a line for each number of codes; end with an error where the cache changes one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tokens", type=int, nargs="+", default=[64, 144, 256])
    parser.add_argument("--images", type=int, default=32, help="in a pass; the stage takes 125")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    lines = [["codes", "cached ms/image", "us/code", "without ms/image", "ratio", "same codes"]]
    differ = []
    for tokens in given.tokens:
        model, labels = network(tokens, given.width, given.depth), torch.zeros(given.images, dtype=torch.long)
        times: dict[bool, list[float]] = {True: [], False: []}
        made: dict[bool, Tensor] = {}
        for _ in range(given.rounds):
            for cache in (True, False):

                def sample(model: VQAutoregressive = model, labels: Tensor = labels, cache: bool = cache) -> Tensor:
                    return sample_codes(model, Choice(given.images, given.images), range(given.images), labels, cache)

                taken, made[cache] = seconds(sample)
                times[cache].append(taken / given.images)
        cached, without = min(times[True]), min(times[False])
        same = (made[True] == made[False]).double().mean().item()
        differ += [] if same == 1 else [str(tokens)]
        lines.append(
            [
                str(tokens),
                f"{1e3 * cached:.1f}",
                f"{1e6 * cached / tokens:.0f}",
                f"{1e3 * without:.1f}",
                f"{without / cached:.1f}",
                f"{same:.2%}",
            ]
        )
    print("\n".join(aligned(lines, left=())))
    if differ:
        sys.exit(f"The cache changes codes of images of {', '.join(differ)} codes.")


if __name__ == "__main__":
    main()
