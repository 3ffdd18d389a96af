"""Pixel art, and images that are no squares: what `darkroom init` finds, chooses and prints."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_images

from darkroom.check.check import check
from darkroom.cli import main
from darkroom.params.stage import read_yaml
from darkroom.tools.init.facts import is_pixel_art, look
from darkroom.tools.init.subject import opened

PHOTOGRAPHS = [Image.fromarray(image) for image in load_sample_images().images]


def sprite(number: int, size: tuple[int, int] = (72, 72), colours: int = 12) -> Image.Image:
    """Return blocks of 3 x 3 pixels in a palette, with single pixels of other colours."""
    numbers = np.random.default_rng(number)
    blocks = numbers.integers(0, colours, (size[1] // 3, size[0] // 3)).repeat(3, axis=0).repeat(3, axis=1)
    places = np.where(numbers.random(blocks.shape) < 0.2, numbers.integers(0, colours, blocks.shape), blocks)
    return Image.fromarray(numbers.integers(0, 256, (colours, 3), dtype=np.uint8)[places])


def photograph(number: int, size: int) -> Image.Image:
    """Return a part of a photograph at a size."""
    left, top = np.random.default_rng(number).integers(0, 160, 2).tolist()
    return PHOTOGRAPHS[number % 2].resize((size, size), box=(left, top, left + 256, top + 256))


def folder(tmp_path: Path, images: list[Image.Image]) -> str:
    root = tmp_path / "mine"
    root.mkdir()
    for number, image in enumerate(images):
        image.save(root / f"{number}.png")
    return str(root)


@pytest.mark.parametrize("size", [18, 72, 126])
def test_pixel_art_has_few_colours_and_hard_edges(size: int) -> None:
    art = sprite(0, (size, size))
    assert is_pixel_art(art, grey=False) and is_pixel_art(art.quantize(16), grey=False)
    assert is_pixel_art(art.resize((2 * size, 2 * size), Image.Resampling.NEAREST), grey=False)
    assert not is_pixel_art(art.resize((2 * size, 2 * size), Image.Resampling.BICUBIC), grey=False)
    assert not any(is_pixel_art(photograph(number, size), grey=False) for number in range(10))
    assert not is_pixel_art(Image.new("RGB", (size, size), "red"), grey=False)
    flat = Image.new("RGB", (size, size), "red")
    flat.paste("blue", (size // 4, size // 4, size // 2, size // 2))
    assert not is_pixel_art(flat, grey=False)


@pytest.mark.parametrize(("minutes", "size"), [("40", 72), ("0.2", 36)])
def test_pixel_art_keeps_its_size_if_the_time_allows_and_is_padded(
    clone: Path, quick: list, tmp_path: Path, capsys: pytest.CaptureFixture[str], minutes: str, size: int
) -> None:
    sprites = [sprite(number, (72, 48) if number % 10 == 0 else (72, 72)) for number in range(60)]
    assert main(["init", folder(tmp_path, sprites), "--minutes", minutes]) == 0
    found, said = read_yaml(Path("params.yaml"))["ingest"], capsys.readouterr().out
    assert "fit each other" in check()
    assert (found["image_size"], found["fit"], found["pad_colour"], found["resample"]) == (
        size,
        "pad",
        "border",
        "nearest",
    )
    measured = [params["ingest"]["image_size"] for params in quick]
    assert set(measured) == ({36} if size == 36 else {36, 72})  # the own size only if it may fit
    assert f"Stored as squares of {size} pixels (longer sides are 72 to 72, median 72: " in said
    assert "whole, with a margin; a crop would remove more than 5 % of each image in 10.0% of them." in said
    assert "100.0% are pixel art (few colours, hard edges): resized by `nearest`." in said
    smaller, larger = (64, 96) if size == 72 else (32, 48)
    assert f"Estimates for other sizes: `--size {smaller}`: " in said and f"; `--size {larger}`: " in said


def test_photographs_are_cropped_and_what_that_cuts_is_said(
    clone: Path, quick: list, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = [photograph(number, 96).crop((0, 0, 96, 64 if number % 2 else 96)) for number in range(60)]
    root = folder(tmp_path, images)
    found = look(opened(root))
    assert (found.side, found.longer, found.cropped, found.pixel_art) == ((64, 80, 96), (96, 96, 96), 0.5, 0)
    assert main(["init", root, "--minutes", "10", "--size", "70"]) == 0
    assert {"fit", "pad_colour", "resample"}.isdisjoint(read_yaml(Path("params.yaml"))["ingest"])
    said = capsys.readouterr().out
    assert "cropped to the middle, which removes more than 5 % of each image in 50.0% of them." in said
    assert "Stored as squares of 70 pixels" in said and "as asked" in said
