"""What `darkroom init` refuses: in one sentence that says what to do, at once, with params.yaml as it was."""

import os
from pathlib import Path

import pytest

from darkroom.cli import main


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run it; return what it said, without the command's name."""
    before = Path("params.yaml").read_bytes()
    assert main(["init", *arguments]) != 0
    assert Path("params.yaml").read_bytes() == before
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "nowhere does not exist: use a folder of images, or one of digits"),
        (["params.yaml"], "params.yaml is a file"),
        (["torchvision:"], "does not exist"),
        (["torchvision:Nope"], "`torchvision.dataset` is Nope, which is not a classification set"),
        (["digits", "--minutes", "0"], "--minutes is 0"),
        (["digits", "--size", "15"], "--size is 15, but must be at least 16"),
    ],
)
def test_what_is_no_source(clone, quick, capsys, arguments, said):
    assert said in refused(capsys, *arguments)
    assert not quick


def test_a_data_set_that_is_not_here(clone, quick, capsys):
    Path("params.yaml").write_text(
        Path("params.yaml").read_text().replace("torchvision: {}", "torchvision:\n  download: false")
    )
    said = refused(capsys, "torchvision:MNIST")
    assert "MNIST is missing or incomplete in .darkroom/downloads/torchvision/MNIST" in said


def test_the_hub_without_a_network(clone, quick, capsys, monkeypatch):
    huggingface = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(huggingface, "HF_HUB_OFFLINE", True)
    assert "someone/pictures cannot be read from the Hugging Face Hub: OfflineModeIsEnabled" in refused(
        capsys, "hub:someone/pictures"
    )


def test_folders_without_images(clone, quick, capsys, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "has no image files: use the folder" in refused(capsys, str(tmp_path / "empty"))
    (tmp_path / "empty" / "notes.txt").touch()
    (tmp_path / "empty" / ".a.png").touch()
    assert "but 1 .txt, 1 hidden images" in refused(capsys, str(tmp_path / "empty"))
    (tmp_path / "empty" / "logo.svg").touch()
    said = refused(capsys, str(tmp_path / "empty"))
    assert "1 .svg" in said and "convert others, such as SVG" in said


def test_a_folder_of_a_telephones_photographs(clone, quick, capsys, tmp_path):
    (tmp_path / "telephone").mkdir()
    for number in range(40):
        (tmp_path / "telephone" / f"{number}.heic").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
    assert "(not_an_image 40): HEIC: not read; convert it to PNG or JPEG; or `pip install -e '.[formats]'`" in refused(
        capsys, str(tmp_path / "telephone")
    )


@pytest.mark.parametrize("folder", [".", "..", "data", "data/shards/first", ".darkroom"])
def test_folders_of_the_repository(clone, quick, capsys, pictures, folder):
    pictures(f"clone/{folder}", [f"{number}.png" for number in range(40)])
    assert "a separate folder" in refused(capsys, folder)


def test_few_images_and_many_copies_of_few(clone, quick, capsys, pictures):
    root = pictures("pictures", [f"{number}.png" for number in range(3)])
    assert "3 images are too few: scores use held-out images, so 40 are needed" in refused(capsys, str(root))
    for number in range(3, 300):
        os.link(root / f"{number % 3}.png", root / f"{number}.png")
    assert "only about 3 of 300 images are different and readable" in refused(capsys, str(root))
    assert not quick


def test_a_folder_whose_name_params_cannot_hold(clone, quick, capsys, pictures, tmp_path):
    root = pictures("pictures", [f"{number}.png" for number in range(40)])
    other = root.rename(tmp_path / os.fsdecode(b"p\xff"))
    assert "rename the folder" in refused(capsys, str(other))


def test_texts_are_refused_where_there_are_no_captions(clone, quick, capsys, pictures):
    root = pictures("pictures", [f"{number}.png" for number in range(40)])
    assert "--text needs different captions for most images" in refused(capsys, str(root), "--text")


def test_captions_that_are_always_the_same_are_told_of(clone, quick, capsys, pictures):
    root = pictures("pictures", [f"{number}.png" for number in range(40)])
    for path in root.glob("*.png"):
        path.with_suffix(".txt").write_text("a thing")
    assert "100% have one, always the same" in refused(capsys, str(root), "--text")
    for minutes in ("-1", "inf", "nan"):
        assert f"--minutes is {minutes}, but must be above 0" in refused(capsys, str(root), "--minutes", minutes)


@pytest.mark.parametrize("option", ["--text", "--no-text"])
def test_texts_are_chosen_for_the_transformer_alone(clone, capsys, option):
    assert f"{option} needs the generator dit" in refused(capsys, "digits", option, "--generator", "none")
