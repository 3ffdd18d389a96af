"""The settings that `darkroom init` writes for a person's folder go through the whole DAG."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from dag.sandbox import Sandbox
from helpers import DIGITS

pytestmark = pytest.mark.slow  # each measures this machine and runs every stage: minutes

IMAGES = 2100  # more than are read while the machine is measured


def draw(folder: Path) -> None:
    """Write images in two classes: the first are damaged, the next have no caption, a pipe lies between them."""
    numbers = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
    for number in range(IMAGES):
        path = folder / ("cat" if number < 0.7 * IMAGES else "dog") / f"{number:04d}.png"
        Image.fromarray(numbers.integers(0, 256, (20, 24, 3), dtype=np.uint8)).save(path)
        if number < 200:
            path.write_bytes(b"no image")
        elif number > 700:
            path.with_suffix(".txt").write_text(f"{path.parent.name} number {number}")
    os.mkfifo(folder / "dog" / "pipe.png")


def shortened(values: Any, batches: int) -> Any:
    """Return settings whose trainings have so many optimizer steps, and are not scored while they last."""
    if not isinstance(values, dict):
        return values
    found = {key: shortened(value, batches) for key, value in values.items()}
    if "batch" in found and "images" in found and "learning_rate" in found:
        batch = found["batch"]
        found |= {"images": batches * batch, "warmup": batch, "log_every": batch, "validate_every": batch}
    if "every" in found:
        found["every"] = 0
    return found


@pytest.mark.parametrize("arguments", [(), ("--no-text", "--size", "48")])
def test_what_it_writes_runs(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    draw(tmp_path / "my pictures")
    sandbox = Sandbox.clone(tmp_path / "clone")
    shutil.copy(DIGITS, sandbox.root)
    said = sandbox.run("darkroom", "init", str(tmp_path / "my pictures"), "--minutes", "2", *arguments)
    assert "2,101 images" in said and "2 classes" in said and "pipe.png (a pipe (FIFO))" in said
    path = sandbox.root / "params.yaml"
    path.write_text(yaml.safe_dump(shortened(yaml.safe_load(path.read_text()), 3), sort_keys=False))
    sandbox.snakemake()
    assert (sandbox.root / "reports/index.html").is_file()
    sandbox.assert_nothing_to_do()
