"""Images a second of `embed_clip`'s embedder, shards in and float16 out, against CLIP's bare forward pass.

    python benchmarks/embedding.py [--threads 2] [--images 256] [--size small|b32]

The bare pass is `encode_image` of batches of tensors that are ready; it takes turns with the embedder on the same
images, decoded in memory, and in shards, from which it also reads, checks and decodes them, in one process. The
networks have random weights: `small` is that of params.yaml at 32 pixels, `b32` as large as OpenAI's ViT-B/32 at 224.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from darkroom.artifacts.manifest import write_manifest
from darkroom.data.images import to_pil
from darkroom.data.reader import ImageShards
from darkroom.data.sample import Sample
from darkroom.data.shards import write_shards
from darkroom.device import set_up_device
from darkroom.models.clip.embedding import Embedder
from darkroom.models.clip.network import Clip, Contrastive, preprocessed

SMALL = dict(
    zip(("image_network", "image_size", "patch", "image_width", "image_layers"), ("vit", 32, 8, 64, 2), strict=True)
)
B32 = dict(
    zip(("image_network", "image_size", "patch", "image_width", "image_layers"), ("vit", 224, 32, 768, 12), strict=True)
)
TEXT = {
    "small": {"text_width": 64, "text_layers": 2, "context_length": 16, "embed_dim": 64},
    "b32": {"text_width": 512, "text_layers": 12, "context_length": 77, "embed_dim": 512},
}


def shards(folder: Path, size: int, images: int) -> ImageShards:
    """Write and open smooth pictures with some noise, as PNG."""
    rng = np.random.default_rng(0)

    def picture(number: int) -> Sample:
        coarse = torch.from_numpy(rng.uniform(0, 255, (1, 3, 6, 6)))
        smooth = torch.nn.functional.interpolate(coarse, size=(size, size), mode="bicubic")[0].numpy()
        noisy = np.clip(smooth + rng.normal(0, 4, smooth.shape), 0, 255).astype(np.uint8)
        return Sample(f"{number:06d}", to_pil(noisy))

    facts = write_shards(folder, (picture(number) for number in range(images)), images, "png")
    write_manifest(folder, "samples", image_shape=[3, size, size], **facts)
    return ImageShards.open_folder(folder)


class InMemory:
    """The same images, decoded: what the embedder adds beside reading."""

    def __init__(self, images: np.ndarray) -> None:
        self.images = images

    def __getitems__(self, rows: range) -> np.ndarray:
        return self.images[rows.start : rows.stop]


def main() -> None:
    """Print the speeds and their ratios to the bare pass: the medians of the rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", choices=["small", "b32"], default="small")
    given = parser.parse_args()
    device = set_up_device(given.threads, "cpu")
    torch.manual_seed(0)
    size = {**(SMALL if given.size == "small" else B32), **TEXT[given.size]}
    clip = Clip(Contrastive(size), "random").to(device)
    embedder = Embedder(clip, given.batch, normalise=True, encodings=False)
    rows = range(given.images)
    with tempfile.TemporaryDirectory() as folder:
        reader = shards(Path(folder) / "shards", size["image_size"], given.images)
        memory = InMemory(reader.__getitems__(rows))
        ready = [preprocessed(batch, clip.image_size) for batch in torch.from_numpy(memory.images).split(given.batch)]

        def bare() -> None:
            with torch.no_grad():
                for batch in ready:
                    clip.network.encode_image(batch)

        ways = {
            "bare": bare,
            "from memory": lambda: embedder.images(memory, rows).astype(np.float16),
            "from shards": lambda: embedder.images(reader, rows).astype(np.float16),
        }
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(given.rounds + 1):
            for name, way in ways.items():
                began = time.perf_counter()
                way()
                if number:  # the first warms up
                    seconds[name].append(time.perf_counter() - began)
    for name, found in seconds.items():
        ratio = np.median([one / other for one, other in zip(seconds["bare"], found, strict=True)])
        print(f"{given.size} {name}: {given.images / np.median(found):,.0f} images/s, ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
