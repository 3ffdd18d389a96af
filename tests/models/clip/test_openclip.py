"""CLIPs of open_clip, in small files of the real format: what they say is what open_clip says."""

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.artifacts.models import CLIP as KIND
from darkroom.errors import DarkroomError
from darkroom.models.clip.load import load_clip, save_clip
from darkroom.models.clip.load import open_clip as evaluator
from darkroom.models.clip.openclip import OpenClip, read_open_clip
from darkroom.models.clip.settings import Pretrained, TrainClip, unfit
from helpers import training
from models.clip.openclip_made import MODELS, TEXT, published

TEXTS = ["a red circle", "A  Blue square, large", "ring"]
KEY = "score_decoder.clip"


@torch.no_grad()
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_it_says_what_open_clip_says(tmp_path: Path, kind: str, interpolation: str) -> None:
    folder = published(tmp_path / "theirs", kind, {"interpolation": interpolation})
    import open_clip

    model, prepare = open_clip.create_model_from_pretrained(f"local-dir:{folder}")
    ours = read_open_clip(str(folder))
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (4, 3, 40, 40), dtype=np.uint8))
    given = torch.stack([prepare(Image.fromarray(image.permute(1, 2, 0).numpy())) for image in images])
    # Resized, a pixel differs by one grey level at most.
    torch.testing.assert_close(ours._preprocessing(images), given, atol=1.01 / 255 / 0.2, rtol=0)
    expected = model.eval().encode_image(given, normalize=False)
    torch.testing.assert_close(ours.images(images), expected, atol=2e-2, rtol=2e-2)
    size = ours.image_size
    small = images[..., :size, :size]
    given = torch.stack([prepare(Image.fromarray(image.permute(1, 2, 0).numpy())) for image in small])
    expected = model.encode_image(given, normalize=False)
    torch.testing.assert_close(ours.images(small), expected, atol=1e-5, rtol=1e-5)
    tokens = open_clip.get_tokenizer(f"local-dir:{folder}", context_length=12)(TEXTS)
    embeddings, encodings = ours.texts(TEXTS)
    torch.testing.assert_close(embeddings, model.encode_text(tokens, normalize=False), atol=1e-5, rtol=1e-5)
    assert encodings.shape == (3, 12, 24) == (3, ours.context_length, ours.text_width)
    ends = tokens.argmax(dim=1)
    for number, end in enumerate(ends.tolist()):
        assert not encodings[number, end + 1 :].any() and encodings[number, : end + 1].abs().sum(dim=1).all()
    if kind != "coca":  # whose embedding is of a token of its own
        found = encodings[torch.arange(3), ends] @ getattr(model, "text", model).text_projection
        torch.testing.assert_close(found, embeddings, atol=1e-5, rtol=1e-5)


def test_an_encoding_is_of_its_token_and_those_before(tmp_path: Path) -> None:
    ours = read_open_clip(str(published(tmp_path / "theirs", "coca")))
    one, other = (ours.texts([text])[1][0] for text in ("a red circle", "a red square"))
    torch.testing.assert_close(one[:3], other[:3])  # start, a, red
    assert not torch.allclose(one[3], other[3], atol=1e-3)


def test_it_is_written_as_open_clip_opens_it_and_has_one_fingerprint(tmp_path: Path) -> None:
    import_folder = published(tmp_path / "theirs", "quick")
    first = read_open_clip(str(import_folder))
    folder = tmp_path / "clip"
    folder.mkdir()
    metadata = save_clip(folder, first)
    assert metadata == {
        "embed_dim": 8,
        "text_width": 24,
        "context_length": 12,
        "image_size": 16,
        "weights": first.fingerprint,
    }
    write_manifest(folder, KIND, long_captions="truncate", **metadata, files=file_hashes(folder))
    again, file = load_clip(folder), evaluator(import_folder, KEY)
    assert again.fingerprint == file.fingerprint == first.fingerprint == read_open_clip(str(folder)).fingerprint
    assert again.truncate and file.truncate
    images = torch.randint(0, 256, (2, 3, 16, 16), dtype=torch.uint8)
    for clip in (again, file):
        assert torch.equal(clip.images(images), first.images(images))
        assert torch.equal(clip.texts(TEXTS)[0], first.texts(TEXTS)[0])
    import open_clip

    theirs = open_clip.create_model(f"local-dir:{folder}").state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in first.state().items())
    # Other weights, or the same that see other images, are another CLIP.
    others = published(tmp_path / "seed", "quick", seed=1), published(tmp_path / "mean", "quick", {"mean": [0.5] * 3})
    assert len({first.fingerprint, *(read_open_clip(str(each)).fingerprint for each in others)}) == 3


def test_the_random_state_is_left_alone(tmp_path: Path) -> None:
    folder = published(tmp_path / "theirs")
    state = torch.get_rng_state()
    read_open_clip(str(folder))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("text", "images", "said"),
    [
        ({"hf_tokenizer_name": "a/b"}, {}, "has its own tokenizer"),
        ({"vocab_size": 100}, {}, "has its own tokenizer"),
        ({}, {"size": [16, 24]}, "sees 16 x 24 pixels"),
        ({}, {"interpolation": "random"}, "resized by random"),
    ],
)
def test_what_cannot_be_read_here_is_refused(
    tmp_path: Path, text: dict[str, Any], images: dict[str, Any], said: str
) -> None:
    clip = read_open_clip(str(published(tmp_path / "theirs")))
    model = {**clip.config["model_cfg"], "text_cfg": {**TEXT, **text}}
    with pytest.raises(DarkroomError, match=said):
        OpenClip(clip.network, {"model_cfg": model, "preprocess_cfg": {**clip.config["preprocess_cfg"], **images}})


def test_damaged_weights_and_a_pickle_that_would_run_code_are_one_sentence(tmp_path: Path) -> None:
    folder = published(tmp_path / "theirs")
    weights = folder / "open_clip_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(DarkroomError, match=r"the CLIP .*theirs of open_clip cannot be read") as told:
        read_open_clip(str(folder))
    assert "\n" not in str(told.value)
    weights.unlink()

    class Evil:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "ran",)

    with (folder / "open_clip_pytorch_model.bin").open("wb") as file:
        pickle.dump(Evil(), file)
    with pytest.raises(DarkroomError, match="cannot be read"):
        read_open_clip(str(folder))
    assert not (tmp_path / "ran").exists()


# --- without the package ---


def section(**changes: Any) -> TrainClip:
    given = {"name": None, **changes}
    return TrainClip(source="pretrained", pretrained=given, training=training(images=8).model_dump())


def test_a_missing_package_is_named_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("darkroom.models.clip.settings.find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "open_clip", None)
    (tmp_path / "open_clip_config.json").write_text("{}")
    for changes in ({"open_clip": "ViT-B-32/laion2b_s34b_b79k"}, {"file": str(tmp_path)}):
        assert "pip install -e '.[open_clip]'" in (unfit(section(**changes), 32) or "")
    with pytest.raises(DarkroomError, match=r"needs open_clip: install it with `pip install -e '\.\[open_clip\]'`"):
        read_open_clip("hf-hub:a/b")


def test_a_folder_that_is_no_clip_is_refused(tmp_path: Path) -> None:
    assert "which is not a file" in (unfit(section(file=str(tmp_path)), 32) or "")


@pytest.mark.parametrize("name", ["ViT-B-32", "https://a/b", "hf-hub:a", "a/b/c"])
def test_names_are_an_architecture_with_its_weights_or_of_the_hub(name: str) -> None:
    with pytest.raises(ValueError, match="String should match pattern"):
        Pretrained(name=None, open_clip=name)


def test_images_are_enlarged_unless_that_is_refused() -> None:
    assert unfit(section(name="ViT-L/14"), 64) is None
    assert "takes 224 pixels a side, but the images have" in (unfit(section(name="ViT-L/14", enlarge=False), 64) or "")
    assert "takes 336 pixels" in (unfit(section(name="ViT-L/14@336px", enlarge=False), 256) or "")
    assert unfit(section(name="ViT-L/14", enlarge=False), 224) is None
