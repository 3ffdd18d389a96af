"""Ingest against its own work and against torchvision: 20,000 photographs to 256 px PNG, 2 processes, in one run.

    PYTHONPATH=src python benchmarks/ingest.py [--images 20000] [--processes 2]

The same JPEG files (crops of the two photographs that scikit-learn carries, 360x300 pixels, quality 90, in ten class
folders) go through

- bare: decoding, resizing and encoding alone, with Pillow, in as many processes: the least that the work can take;
- darkroom: the stage `ingest` with the source `folder`, that is the same and listing, checks, hashes, splits, tars,
  index, flush to the disk;
- torchvision: ImageFolder with Resize and CenterCrop, read by a DataLoader of as many workers, each image saved as PNG.

The peak memory of the stage and its processes is measured at a tenth of the images and at all of them, with as many
looks at both: the largest of more looks would be larger.
"""

import argparse
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
import psutil
from PIL import Image

SIZE, CLASSES = 256, 10
WIDTH, HEIGHT = 360, 300
_CHUNK = 16

STAGE = """
import sys, yaml
from darkroom.params.ingest import Params
from darkroom.stages import ingest
values = yaml.safe_load(open(sys.argv[1]).read())
ingest.run(Params.model_validate(values), "photos")
"""


def make_photographs(folder: Path, count: int) -> None:
    """Write JPEG files into class folders: crops at random places, each jittered, so that no two are equal."""
    from sklearn.datasets import load_sample_images

    photographs = load_sample_images().images
    random = np.random.default_rng(0)
    for number in range(count):
        photograph = photographs[number % 2]
        top = random.integers(0, photograph.shape[0] - HEIGHT)
        left = random.integers(0, photograph.shape[1] - WIDTH)
        crop = photograph[top : top + HEIGHT, left : left + WIDTH]
        bright = np.clip(crop * random.uniform(0.8, 1.2), 0, 255).astype(np.uint8)
        path = folder / f"class{number % CLASSES}" / f"{number:06d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(bright).save(path, quality=90)


def bare_chunk(paths: Sequence[str]) -> int:
    """Decode, crop, resize and encode some files as `ingest` does, and drop the bytes."""
    total = 0
    for path in paths:
        with Image.open(path) as image:
            rgb = image.convert("RGB")
        side = min(rgb.size)
        left, top = (rgb.width - side) // 2, (rgb.height - side) // 2
        small = rgb.resize((SIZE, SIZE), Image.Resampling.BICUBIC, box=(left, top, left + side, top + side))
        buffer = BytesIO()
        small.save(buffer, format="PNG", compress_level=4)
        total += len(buffer.getvalue())
    return total


def bare(photographs: Path, out: Path, processes: int) -> None:
    """The work alone, shared out in chunks."""
    paths = sorted(str(path) for path in photographs.rglob("*.jpg"))
    chunks = [paths[at : at + _CHUNK] for at in range(0, len(paths), _CHUNK)]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for _ in pool.imap_unordered(bare_chunk, chunks):
            pass


def stage_values(photographs: Path, processes: int) -> dict:
    """Return params.yaml's values for one part of these files."""
    from darkroom.check.check import read_params

    values = read_params()
    part = {"source": "folder", "path": str(photographs), "start": 0, "stop": None, "settings": {}}
    kept = {name: values[name] for name in ("run", "folder", "ingest")}
    kept["run"]["ingest_processes"] = processes
    kept["ingest"] |= {"image_size": SIZE, "shard_size": 1000}
    return {**kept, "parts": {"photos": part}}


def darkroom(photographs: Path, out: Path, processes: int) -> None:
    """The stage, as a command of its own, in an empty folder."""
    import yaml

    (out / "values.yaml").write_text(yaml.safe_dump(stage_values(photographs, processes)))
    environment = os.environ | {"PYTHONPATH": str(Path("src").resolve())}
    subprocess.run([sys.executable, "-c", STAGE, "values.yaml"], cwd=out, env=environment, check=True)


class Saver:
    """Saves each image as PNG where a DataLoader's worker reads it."""

    def __init__(self, photographs: Path, out: Path) -> None:
        from torchvision import datasets, transforms

        crop = transforms.Compose([transforms.Resize(SIZE), transforms.CenterCrop(SIZE)])
        self._set, self._out = datasets.ImageFolder(str(photographs), crop), out

    def __len__(self) -> int:
        return len(self._set)

    def __getitem__(self, number: int) -> int:
        image, label = self._set[number]
        image.save(self._out / f"{label}-{number:06d}.png", compress_level=4)
        return number


def torchvision(photographs: Path, out: Path, processes: int) -> None:
    """What people write: ImageFolder, a DataLoader, one file an image."""
    from torch.utils.data import DataLoader

    for _ in DataLoader(Saver(photographs, out), batch_size=_CHUNK, num_workers=processes):
        pass


def seconds(work: Callable[[Path, Path, int], None], photographs: Path, processes: int) -> float:
    """Return the wall time of one way, into an empty folder."""
    with tempfile.TemporaryDirectory() as out:
        began = time.perf_counter()
        work(photographs, Path(out), processes)
        return time.perf_counter() - began


def watched(photographs: Path, processes: int, every: float) -> tuple[float, float]:
    """Return the wall time of the stage, and the most memory that it and its processes hold at once, MB.

    Memory is the sum of proportional set sizes, looked at `every` so many seconds: a look takes some 20 ms of a core.
    """
    most, done = 0, threading.Event()

    def held(process: psutil.Process) -> int:
        try:
            return process.memory_full_info().pss
        except psutil.Error:
            return 0

    def sample() -> None:
        nonlocal most
        while not done.wait(every):
            most = max(most, sum(held(each) for each in psutil.Process().children(recursive=True)))

    watcher = threading.Thread(target=sample)
    watcher.start()
    try:
        return seconds(darkroom, photographs, processes), most / 1e6
    finally:
        done.set()
        watcher.join()


def main() -> None:
    """Measure all three on the same files, in turn, and print images/s and ratios."""
    options = argparse.ArgumentParser()
    options.add_argument("--images", type=int, default=20_000)
    options.add_argument("--processes", type=int, default=2)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as place:
        photographs, few = Path(place) / "photographs", Path(place) / "few"
        make_photographs(photographs, asked.images)
        for path in sorted(photographs.rglob("*.jpg"))[::10]:
            (few / path.parent.name).mkdir(parents=True, exist_ok=True)
            shutil.copy(path, few / path.parent.name)
        _, memory_of_few = watched(few, asked.processes, every=0.1)
        taken = {"bare": seconds(bare, photographs, asked.processes)}
        taken["darkroom"], memory = watched(photographs, asked.processes, every=1.0)
        taken["torchvision"] = seconds(torchvision, photographs, asked.processes)
    print(f"\n{asked.images:,} images to {SIZE} px PNG, {asked.processes} processes\n")
    print("| way | s | images/s | speed, bare = 1 |\n|---|---|---|---|")
    for name, took in taken.items():
        print(f"| {name} | {took:.1f} | {asked.images / took:,.0f} | {taken['bare'] / took:.3f} |")
    few_and_all = f"{memory_of_few:.0f} MB at {asked.images // 10:,} images, {memory:.0f} MB at {asked.images:,}"
    print(f"\npeak memory: {few_and_all}: ratio {memory / memory_of_few:.3f}")


if __name__ == "__main__":
    main()
