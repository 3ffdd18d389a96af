"""What is missing, broken or of another run is one sentence that names the file."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from darkroom.errors import DarkroomError
from darkroom.report.inputs import read_inputs
from report.making import TOKENIZER, change, curve

READ = [
    "metrics/generator.json",
    "metrics/tokenizer.json",
    "cards/generator.json",
    "cards/tokenizer.json",
    "metrics/clip.json",
    "cards/clip.json",
    "samples/decoder/manifest.json",
    "samples/text/manifest.json",
    "models/prior/manifest.json",
    "samples/generator/manifest.json",
    "samples/generator/grid.png",
    "samples/reconstructions/manifest.json",
    "samples/reconstructions/grid.png",
    "data/catalog/manifest.json",
    "samples/catalog/grid.png",
    "data/reference/manifest.json",
    "docs/dag.svg",
]


def refused() -> str:
    with pytest.raises(DarkroomError) as caught:
        read_inputs()
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def test_whole_project_is_read(made: Path) -> None:
    assert read_inputs().tokenizer.scores == TOKENIZER


def wrong_answers(broken: Callable[[Path], object], says: str) -> dict[str, str]:
    """Break one file after another; return what is answered, by file, where it is not one sentence with `says`."""
    wrong = {}
    for path in READ:
        data = Path(path).read_bytes()
        broken(Path(path))
        try:
            read_inputs()
            answer = "nothing"
        except DarkroomError as error:
            answer = str(error)
        Path(path).write_bytes(data)
        if says.format(path) not in answer or "\n" in answer:
            wrong[path] = answer
    assert read_inputs().tokenizer.scores == TOKENIZER  # all is whole again
    return wrong


def test_missing_files_are_named(made: Path) -> None:
    assert wrong_answers(Path.unlink, "{} is missing") == {}


def test_half_files_are_named(made: Path) -> None:
    assert wrong_answers(lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]), "{}") == {}


def test_missing_curves_are_named(made: Path) -> None:
    shutil.rmtree("curves/extractor")
    assert "curves/extractor is missing" in refused()


@pytest.mark.parametrize("point", [("x", 1.0), (1, "loss"), (1, "")])
def test_broken_curve_is_named_with_its_line(made: Path, point: tuple[object, object]) -> None:
    curve(Path("curves/generator"), "val/loss", [(1, 1.0), point])
    assert "curves/generator/plots/metrics/val/loss.tsv, line 3" in refused()


@pytest.mark.parametrize(
    ("breakage", "names"),
    [
        (lambda: change("metrics/tokenizer.json", ssim="good"), ["metrics/tokenizer.json", "`ssim`"]),
        (lambda: change("metrics/tokenizer.json", psnr=float("inf")), ["metrics/tokenizer.json", "`psnr`"]),
        (lambda: change("cards/generator.json", n_fake=None), ["cards/generator.json", "`protocol.n_fake`"]),
        (lambda: change("data/catalog/manifest.json", classes=3), ["data/catalog", "`classes`"]),
        (lambda: Path("docs/dag.svg").write_text("<html></html>"), ["docs/dag.svg"]),
    ],
)
def test_what_does_not_fit_is_named(made: Path, breakage: Callable[[], object], names: list[str]) -> None:
    breakage()
    sentence = refused()
    assert all(name in sentence for name in names), sentence
