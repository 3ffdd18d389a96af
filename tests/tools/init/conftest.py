"""A folder like a clone, images, and a plan that needs no measuring."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from darkroom.params.stage import read_yaml
from darkroom.tools import preset
from darkroom.tools.cores import Machine
from darkroom.tools.init import command, facts, measuring
from darkroom.tools.plan.plan import Job, Planned
from darkroom.tools.plan.table import Whole
from helpers import DIGITS

ROOT = Path(__file__).parents[3]
SECONDS = {  # of a training for each image
    "train_tokenizer": 0.01,
    "train_extractor": 0.002,
    "train_generator": 0.004,
    "train_clip": 0.004,
    "train_decoder": 0.004,
    "train_prior": 0.001,
}

Pictures = Callable[..., Path]


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder: all that `darkroom init` reads."""
    root = tmp_path / "clone"
    root.mkdir()
    for file in (DIGITS, ROOT / "dvc.yaml"):
        shutil.copy(file, root)
    for name in ("src", "docs", "presets"):
        (root / name).symlink_to(ROOT / name)
    (root / "data").mkdir()
    (root / "data" / "none").touch()
    monkeypatch.chdir(root)
    preset.apply("digits")  # where a person chose another preset for this clone, that is no fault
    return root


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """A machine that need not be measured. Returns what params.yaml held each time it was."""
    seen: list[dict] = []

    def planned(everything: bool, history: bool) -> Planned:
        values = read_yaml(Path("params.yaml"))
        seen.append(values)
        jobs = {name: Job(3 + each * values[name]["training"]["images"], 1) for name, each in SECONDS.items()}
        jobs |= {f"ingest@{part}": Job(1.0, 1) for part in values["parts"]}
        needs = {name: set[str]() for name in jobs} | {"train_generator": {"train_tokenizer"}}
        return Planned([], Whole(0.0, 0.0, 0.0, 2, 1.5, 1.0), [], needs, jobs)

    monkeypatch.setattr(measuring, "planned", planned)
    monkeypatch.setattr(command, "this_machine", lambda device: Machine(2))  # whose convolutions are not timed
    monkeypatch.setattr(facts, "LOOKED", 120)  # images of a collection: rendered scenes take a while
    return seen


@pytest.fixture
def pictures(tmp_path: Path) -> Pictures:
    """A function that writes images of some mode and size, no two alike, and returns their folder."""
    numbers = np.random.default_rng(0)

    def write(folder: str, names: list[str], mode: str = "RGB", size: tuple[int, int] = (20, 16)) -> Path:
        root = tmp_path / folder
        for name in names:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = numbers.integers(0, 256, (4, 4, 3), dtype=np.uint8)
            image = Image.fromarray(pixels).convert("L").convert(mode) if mode == "L" else Image.fromarray(pixels)
            image = image.convert(mode).resize(size)
            if mode == "RGBA":
                image.putalpha(Image.linear_gradient("L").resize(size))
            image.save(path)
        return root

    return write


def classes(*names: str, each: int = 20) -> list[str]:
    """Return the paths of images in folders of classes."""
    return [f"{name}/{number}.png" for name in names for number in range(each)]
