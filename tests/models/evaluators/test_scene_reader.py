"""The reader of scenes: what it makes of its cells, its files, and what it refuses."""

from pathlib import Path

import pytest
import torch

from darkroom.artifacts.manifest import ArtifactError, file_hashes, write_manifest
from darkroom.artifacts.models import SCENE_READER as KIND
from darkroom.data.scenes.attributes import Detection
from darkroom.models.evaluators.scene_reader import SceneReader, open_scene_reader, things_in
from darkroom.models.evaluators.settings import GRID

WORDS = {"colour": ("red", "blue"), "form": ("circle", "star", "ring"), "size": ("small", "large")}
CPU = torch.device("cpu")


def reader(seed=0):
    torch.manual_seed(seed)
    return SceneReader(WORDS, [8, 8], 1).eval()


def said(*cells):
    """Return what is said of the cells of one picture: of some, (row, column, probability, right, down, colour, form,
    size) of a thing in it, and of all others that there is none.
    """
    values = torch.zeros(1, GRID, GRID, 3 + 7)
    values[..., 0] = -9.0
    for row, column, probability, right, down, *names in cells:
        cell = values[0, row, column]
        cell[0], cell[1], cell[2] = torch.logit(torch.tensor(probability, dtype=torch.float64)), right, down
        for name, (start, known) in zip(names, ((3, "colour"), (5, "form"), (8, "size")), strict=True):
            cell[start + WORDS[known].index(name)] = 1.0
    return values.flatten(1, 2)


def test_a_thing_is_read_from_its_cell():
    found = reader().read(
        said((2, 5, 0.9, 0.25, 0.5, "blue", "ring", "small"), (7, 0, 0.6, 0.0, 1.0, "red", "star", "large"))
    )
    assert found == [
        [Detection("blue", "ring", "small", 5.25 / 8, 2.5 / 8), Detection("red", "star", "large", 0.0, 1.0)]
    ]


def test_a_centre_on_a_border_is_one_thing_that_two_cells_share():
    """Neither cell is sure, both together are; where both are sure, they are still one thing."""
    star = ("red", "star", "large")
    for here, there in ((0.45, 0.4), (0.95, 0.9), (1 - 5e-8, 1 - 1e-7)):
        found = reader().read(said((3, 3, here, 1.0, 0.5, *star), (3, 4, there, 0.0, 0.5, *star)))
        assert found == [[Detection(*star, 0.5, 3.5 / 8)]]
    assert reader().read(said((3, 3, 0.45, 1.0, 0.5, *star), (3, 5, 0.4, 0.0, 0.5, *star))) == [[]]


def test_two_things_two_cells_apart_are_two():
    star = ("red", "star", "large")
    assert len(reader().read(said((3, 3, 0.9, 1.0, 0.5, *star), (3, 5, 0.9, 0.0, 0.5, *star)))[0]) == 2


def test_what_was_written_is_read_with_the_same_answers(tmp_path):
    written = reader()
    written.save_pretrained(tmp_path)
    images = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        one, other = (each(each.prepared(images)) for each in (written, SceneReader.from_pretrained(tmp_path)))
    assert torch.equal(one, other) and one.shape == (3, 64, 10)
    again = tmp_path / "again"
    again.mkdir()
    reader().save_pretrained(again)
    assert file_hashes(again) == {name: value for name, value in file_hashes(tmp_path).items() if "/" not in name}


def test_transparent_images_are_laid_over_white():
    clear = torch.zeros(1, 4, 32, 32, dtype=torch.uint8)
    assert torch.equal(reader().prepared(clear), torch.ones(1, 3, 32, 32))


def test_an_image_is_read_alike_in_any_company(monkeypatch):
    torch.manual_seed(1)
    images = torch.randint(0, 256, (5, 3, 32, 32), dtype=torch.uint8)
    network = reader()
    with torch.no_grad():
        network.head.bias[0] = 0.0  # something is seen everywhere
    whole = [each for group in things_in(network, [images], 4, CPU) for each in group]
    alone = [each for group in things_in(network, [images[4:]], 4, CPU) for each in group]
    assert len(whole) == 5 and whole[4] == alone[0] and whole[4]


def write(folder, **metadata):
    folder.mkdir()
    reader().save_pretrained(folder)
    metadata = {"trained": True, "image_shape": [3, 32, 32], **metadata}
    write_manifest(folder, KIND, **metadata, files=file_hashes(folder))


def test_a_reader_is_opened_for_its_own_images_only(tmp_path):
    write(tmp_path / "a")
    assert not open_scene_reader(tmp_path / "a", (3, 32, 32)).training
    with pytest.raises(ArtifactError, match=r"images of shape \[3, 32, 32\], but these are \[3, 64, 64\].*dvc repro"):
        open_scene_reader(tmp_path / "a", (3, 64, 64))
    write(tmp_path / "b", trained=False, reason="nobody asks")
    with pytest.raises(ArtifactError, match=r"was not trained, because nobody asks.*dvc repro train_scene_reader"):
        open_scene_reader(tmp_path / "b", (3, 32, 32))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_damaged_reader_is_told(tmp_path, name):
    reader().save_pretrained(tmp_path)
    Path(tmp_path / name).write_text("{}")
    with pytest.raises(ArtifactError, match="is damaged"):
        SceneReader.from_pretrained(tmp_path)
    Path(tmp_path / name).unlink()
    with pytest.raises(ArtifactError, match="holds no reader"):
        SceneReader.from_pretrained(tmp_path)
