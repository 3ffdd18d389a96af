"""A CLIP that scores is one of a folder or of a file, and has the same identity in both."""

from pathlib import Path

import pytest
import torch

from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.artifacts.models import CLIP as KIND
from darkroom.errors import DarkroomError
from darkroom.models.clip.load import PICKLE, open_clip, save_clip
from darkroom.models.clip.network import Contrastive

SIZE = {
    "image_network": "vit",
    "image_size": 16,
    "patch": 8,
    "image_width": 64,
    "image_layers": 1,
    "text_width": 64,
    "text_layers": 1,
    "context_length": 16,
    "embed_dim": 8,
}


@pytest.fixture
def folder(tmp_path):
    """models/clip as `train_clip` writes it."""
    place = tmp_path / "clip"
    place.mkdir()
    torch.manual_seed(0)
    metadata = save_clip(place, Contrastive(SIZE))
    write_manifest(place, KIND, long_captions="stop", **metadata, files=file_hashes(place))
    return place


def test_a_folder_and_the_file_in_it_are_the_same_clip(folder):
    one, other = open_clip(folder, "score_decoder.clip"), open_clip(folder / PICKLE, "score_decoder.clip")
    assert one.fingerprint == other.fingerprint and len(one.fingerprint) == 64
    images = torch.randint(0, 256, (2, 3, 16, 16), dtype=torch.uint8)
    torch.testing.assert_close(one.images(images), other.images(images), rtol=0, atol=0)
    torch.testing.assert_close(one.texts(["a star"])[0], other.texts(["a star"])[0], rtol=0, atol=0)


def test_of_a_text_that_is_too_long_for_a_published_clip_the_beginning_counts(folder):
    long = "star " * 100
    with pytest.raises(DarkroomError):
        open_clip(folder, "score_decoder.clip").texts([long])
    assert open_clip(folder / PICKLE, "score_decoder.clip").texts([long])[0].shape == (1, 8)


def test_what_is_no_clip_is_refused_with_its_key(tmp_path):
    with pytest.raises(DarkroomError, match=r"`score_decoder\.clip` is no/clip\.pt, which does not exist.*data/none"):
        open_clip(Path("no/clip.pt"), "score_decoder.clip")
    (tmp_path / "text.pt").write_text("no weights")
    with pytest.raises(DarkroomError, match=r"text\.pt, which `score_decoder\.clip` names, cannot be read") as told:
        open_clip(tmp_path / "text.pt", "score_decoder.clip")
    assert "\n" not in str(told.value)
