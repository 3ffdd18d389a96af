"""`darkroom show`: grids, image files, the newest grid of a training, a list."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.color import ColorSystem

from darkroom.cli import main
from darkroom.dag.records import Outdated
from darkroom.errors import DarkroomError
from darkroom.tools import bands
from darkroom.tools.bands import drawn_here
from darkroom.tools.show import show
from tools.half_blocks_read import pixels_of


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").touch()


def picture(path: str, seconds: int = 0) -> Image.Image:
    image = Image.fromarray(np.random.default_rng(seconds).integers(0, 256, (8, 10, 3), dtype=np.uint8))
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    image.save(path)
    os.utime(path, (seconds, seconds))
    return image


def test_an_image_file_is_drawn_with_its_path() -> None:
    image = picture("deep/some.png")
    drawn, _, path = show("deep/some.png", 80).rpartition("\n")
    np.testing.assert_array_equal(pixels_of(drawn), np.asarray(image))
    assert path == "deep/some.png"


def test_transparency_is_drawn_over_a_checkerboard() -> None:
    Image.new("RGBA", (16, 16), (9, 9, 9, 0)).save("clear.png")
    assert set(np.unique(pixels_of(show("clear.png", 80).rpartition("\n")[0]))) == {204, 255}


def test_deep_greys_and_a_transparent_colour_are_drawn_as_ingest_reads_them() -> None:
    grey = np.array([[0, 257 * 9], [257 * 200, 65535]], dtype=np.uint16)
    Image.fromarray(grey).save("deep.png")
    assert Image.open("deep.png").mode == "I;16"
    assert pixels_of(show("deep.png", 80).rpartition("\n")[0])[..., 0].tolist() == [[0, 9], [200, 255]]
    Image.new("RGB", (16, 16), (9, 9, 9)).save("key.png", transparency=(9, 9, 9))
    assert set(np.unique(pixels_of(show("key.png", 80).rpartition("\n")[0]))) == {204, 255}


def test_without_a_terminal_the_path_is_named_and_how_to_draw_it(capsys: pytest.CaptureFixture[str]) -> None:
    picture("some.png")
    assert main(["show", "some.png"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("some.png: ") and "--width" in said and "\x1b" not in said
    assert main(["show", "some.png", "--width", "30"]) == 0 and "\x1b" in capsys.readouterr().out


def test_of_a_training_the_newest_grid_of_the_averages_is_drawn() -> None:
    grids = "logs/train_decoder-base/grids"
    picture(f"{grids}/000009000-ema.png", 100)  # of an earlier, longer training
    newest = picture(f"{grids}/000000500-ema.png", 200)
    picture(f"{grids}/000000500-raw.png", 300)
    drawn, _, path = show("train_decoder@base", 80).rpartition("\n")
    assert path == f"{grids}/000000500-ema.png"
    np.testing.assert_array_equal(pixels_of(drawn), np.asarray(newest))
    picture("logs/train_decoder-base/sample_evolution.png", 250)
    assert show("train_decoder@base", 80).rpartition("\n")[2] == "logs/train_decoder-base/sample_evolution.png"
    with pytest.raises(DarkroomError, match="logs/train_clip has no picture of the current data"):
        show("train_clip")


def test_what_there_is_to_look_at_is_listed() -> None:
    with pytest.raises(DarkroomError, match="no images exist yet"):
        show(None)
    listed = [
        "samples/generator/grid.png",
        "samples/nearest/generator/real.png",
        "samples/nearest/text/real.png",
        "samples/nearest/generator/neighbours.png",
        "curves/decoder/up/sample_evolution.png",
        "curves/tokenizer/sample_evolution.png",
        "logs/train_decoder-up/grids/000012800-ema.png",
        "reports/index.html",
    ]
    for number, path in enumerate(listed):
        picture(path, number) if path.endswith("png") else (Path("reports").mkdir(), Path(path).touch())
    picture("logs/train_generator/sample_evolution.png", len(listed))
    picture("logs/train_tokenizer/sample_evolution.png", listed.index("curves/tokenizer/sample_evolution.png"))
    lines = show(None).split("\n")
    listed.insert(7, "logs/train_generator/sample_evolution.png")
    assert [line.split()[0] for line in lines[:-1]] == listed
    assert lines[6].endswith("train_decoder@up after 12,800 images") and lines[7].endswith("train_generator so far")


def test_pictures_of_other_data_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    states = {
        "samples/generator": Outdated("sample_generator", True),
        "curves/tokenizer": Outdated("train_tokenizer", False),
    }
    monkeypatch.setattr("darkroom.tools.show.outdated", lambda: states)
    for path in (
        "samples/generator/grid.png",
        "curves/tokenizer/sample_evolution.png",
        "logs/train_generator/grids/000000500-ema.png",
    ):
        picture(path, 100 + len(path))
    assert [line.split()[0] for line in show(None).split("\n")[:-1]] == [
        "curves/tokenizer/sample_evolution.png",
        "logs/train_generator/grids/000000500-ema.png",
    ]
    assert "stale, from other parameters" in show(None)
    with pytest.raises(DarkroomError, match=r"samples/generator/grid.png belongs to other data than in params.yaml"):
        show("samples/generator")
    Path("logs/runs.jsonl").write_text('{"stage": "ingest@own", "event": "end", "time": 200.0}\n')  # after the grid
    with pytest.raises(DarkroomError, match="has no picture of the current data"):
        show("train_generator")
    states["data/catalog"] = Outdated("catalog", True)
    Path("logs/runs.jsonl").unlink()
    with pytest.raises(DarkroomError, match="has no picture of the current data"):
        show("train_generator")


@pytest.mark.parametrize(("name", "says"), [("no.png", "does not exist"), ("empty", "empty/grid.png does not exist")])
def test_what_is_not_there_is_named(name: str, says: str) -> None:
    Path("empty").mkdir()
    with pytest.raises(DarkroomError, match=says):
        show(name)


def test_what_is_no_image_is_named() -> None:
    Path("text.png").write_text("no")
    Image.fromarray(np.full((2, 2), 9, dtype=np.float32)).save("bright.tiff")
    for name, why in (("text.png", ""), ("bright.tiff", "unsupported: floating-point numbers")):
        with pytest.raises(DarkroomError, match=rf"{name} cannot be read as an image: {why}"):
            show(name, 80)


def test_of_a_wide_grid_the_left_is_drawn_at_half_its_size() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 100, 3), dtype=np.uint8).repeat(2, axis=0).repeat(2, axis=1)
    for path in ("samples/generator/grid.png", "photo.png"):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    np.testing.assert_array_equal(pixels_of(show("samples/generator", 30).rpartition("\n")[0]), pixels[::2, :60:2])
    assert pixels_of(show("photo.png", 30).rpartition("\n")[0]).shape[1] == 30


def test_a_command_draws_its_rows_where_the_terminal_shows_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("a ring\x1b[2J", np.full((3, 1, 8, 8), 99, dtype=np.uint8))]
    assert drawn_here(rows) == ""
    monkeypatch.setattr(bands, "colours_of", lambda stream: ColorSystem.EIGHT_BIT)
    lines = drawn_here(rows).split("\n")
    assert lines[0] == "a ring?[2J" and lines[-1] == "" and len(lines) == 6
    assert drawn_here(rows * 50) == ""  # nobody scrolls through hundreds of lines unasked
