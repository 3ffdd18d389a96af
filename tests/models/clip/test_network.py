"""CLIP as it is used: against clip-anytorch's own functions on the same weights."""

import os
import subprocess
import sys

import clip
import numpy as np
import pytest
import torch
from PIL import Image

from darkroom.artifacts.manifest import ArtifactError, file_hashes, write_manifest
from darkroom.errors import DarkroomError
from darkroom.models.clip.load import load_clip, read_pretrained, save_clip
from darkroom.models.clip.network import Contrastive, build_model, preprocessed, resized, tokenize, tokens_of
from darkroom.models.clip.settings import Name
from models.clip.clips import SIZE, TEXTS


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A CLIP of random weights, as `train_clip` writes it."""
    torch.manual_seed(0)
    network = Contrastive(SIZE)
    folder = tmp_path_factory.mktemp("models") / "clip"
    folder.mkdir()
    metadata = save_clip(folder, network)
    write_manifest(folder, "clip", **metadata, long_captions="stop", files=file_hashes(folder))
    return folder


def photo(size, mode="RGB"):
    """Smooth colours with some noise, as pictures have them."""
    rng = np.random.default_rng(size)
    coarse = Image.fromarray(rng.integers(0, 256, (5, 5, len(mode)), dtype=np.uint8).squeeze(), mode)
    smooth = np.asarray(coarse.resize((size, size), Image.Resampling.BICUBIC)).astype(int)
    return np.clip(smooth + rng.integers(-20, 20, smooth.shape), 0, 255).astype(np.uint8)


@pytest.mark.parametrize(("size", "target"), [(50, 32), (32, 48), (32, 32)])
def test_images_are_prepared_as_clip_does(size, target):
    """Against its transform of a Pillow image: one pixel of thirty may differ, by one grey level, enlarged by two."""
    image = photo(size)
    expected = clip.clip._transform(target)(Image.fromarray(image))
    tensor = torch.from_numpy(image.transpose(2, 0, 1).copy())[None]
    found = preprocessed(tensor, target)[0]
    deviation = torch.tensor([0.26862954, 0.26130258, 0.27577711])[:, None, None]
    levels = ((found - expected) * deviation * 255).abs()
    assert levels.max() < (2.01 if target > size else 1.01)
    assert (levels > 0.5).float().mean() < (0.03 if size != target else 1e-9)


def test_grey_is_repeated_and_transparency_laid_over_white():
    grey = torch.from_numpy(photo(8, "L"))[None, None]
    assert torch.equal(preprocessed(grey, 8), preprocessed(grey.expand(1, 3, 8, 8), 8))
    clear = torch.tensor([10, 20, 30, 0], dtype=torch.uint8).view(1, 4, 1, 1).expand(1, 4, 8, 8)
    assert torch.equal(preprocessed(clear, 8), preprocessed(torch.full((1, 3, 8, 8), 255, dtype=torch.uint8), 8))


@pytest.mark.parametrize("shape", [(1, 2, 8, 8), (1, 3, 8, 6)])
def test_what_is_no_picture_is_refused(shape):
    with pytest.raises(DarkroomError, match=r"needs uint8 images with 1, 3 or 4 channels|CLIP needs square"):
        preprocessed(torch.zeros(shape, dtype=torch.uint8), 8)


def test_a_resized_image_has_whole_levels():
    found = resized(torch.from_numpy(photo(64).transpose(2, 0, 1).copy())[None], 10)
    assert torch.equal(found, found.round()) and found.min() >= 0 and found.max() <= 255


def test_clip_opens_what_was_written(folder):
    """And embeds as `Clip` does, bit for bit: the same weights, in float32, through its own functions."""
    network, _ = clip.load(str(folder / "model.pt"), device="cpu")
    ours = load_clip(folder)
    images = torch.from_numpy(np.stack([photo(8).transpose(2, 0, 1)] * 3))
    with torch.no_grad():
        assert torch.equal(ours.images(images), network.encode_image(preprocessed(images, 8)))
        embeddings, _ = ours.texts(TEXTS)
        assert torch.equal(embeddings, network.encode_text(clip.tokenize(TEXTS, context_length=8)))
    assert (ours.embed_dim, ours.text_width, ours.context_length, ours.image_size) == (8, 64, 8, 8)


def test_clip_opens_a_residual_network_too(tmp_path):
    """With batch norms that have seen images, and as many blocks and as wide as it was asked to be."""
    torch.manual_seed(0)
    size = {**SIZE, "image_network": "resnet", "image_size": 32, "image_width": 4, "image_layers": 2}
    network = Contrastive(size)
    images = torch.from_numpy(np.stack([photo(32).transpose(2, 0, 1), photo(40)[:32, :32].transpose(2, 0, 1)]))
    network.train().encode_image(preprocessed(images, 32))
    metadata = save_clip(tmp_path, network)
    write_manifest(tmp_path, "clip", **metadata, long_captions="stop", files=file_hashes(tmp_path))
    theirs, ours = clip.load(str(tmp_path / "model.pt"), device="cpu")[0], load_clip(tmp_path)
    with torch.no_grad():
        expected = network.eval().encode_image(preprocessed(images, 32))
        assert torch.equal(ours.images(images), theirs.encode_image(preprocessed(images, 32)))
    torch.testing.assert_close(ours.images(images), expected, atol=2e-2, rtol=2e-2)  # weights pass through float16
    assert [len(getattr(theirs.visual, f"layer{level}")) for level in (1, 2, 3, 4)] == [2, 2, 2, 2]


def test_encodings_are_zero_after_the_end(folder):
    """Against the last layer as a hook sees it inside of clip's own function."""
    ours, seen = load_clip(folder), []
    embeddings, encodings = ours.texts(TEXTS)
    ours.network.ln_final.register_forward_hook(lambda *call: seen.append(call[2]))
    tokens = tokenize(TEXTS, 8)
    with torch.no_grad():
        ours.network.encode_text(tokens)
    for row, length in enumerate((tokens != 0).sum(dim=1).tolist()):
        assert torch.equal(encodings[row, :length], seen[0][row, :length])
        assert (encodings[row, length:] == 0).all() and (encodings[row, length - 1] != 0).any()
        assert torch.equal(embeddings[row], encodings[row, length - 1] @ ours.network.text_projection)


def test_another_process_writes_the_same_bytes_and_warns_of_nothing(folder, tmp_path):
    script = (
        "import sys, warnings; warnings.simplefilter('error', UserWarning); import torch; from pathlib import Path; "
        "from darkroom.models.clip.load import save_clip; from darkroom.models.clip.network import Contrastive; "
        "torch.manual_seed(0); folder = Path(sys.argv[1]); folder.mkdir(); "
        f"save_clip(folder, Contrastive({SIZE}))"
    )
    other = tmp_path / "other name"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "1"}
    done = subprocess.run([sys.executable, "-c", script, str(other)], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    for path in other.iterdir():
        assert path.read_bytes() == (folder / path.name).read_bytes(), path.name


def test_a_changed_file_is_refused(folder, tmp_path):
    copy = tmp_path / "clip"
    copy.mkdir()
    for path in folder.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    data = bytearray((copy / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (copy / "model.safetensors").write_bytes(data)
    with pytest.raises(ArtifactError, match=r"model\.safetensors is corrupted"):
        load_clip(copy)


def test_a_file_of_others_is_read(folder, tmp_path):
    """A state dict, and TorchScript as OpenAI publishes it."""
    expected = load_clip(folder).network.state_dict()
    found = read_pretrained(None, str(folder / "model.pt"), tmp_path).state_dict()
    assert all(torch.equal(found[name], value) for name, value in expected.items())

    archive = build_model(dict(torch.load(folder / "model.pt", weights_only=True)))
    traced = torch.jit.trace(archive.float(), (torch.zeros(1, 3, 8, 8), tokenize(["a"], 8)), check_trace=False)
    torch.jit.save(traced, str(tmp_path / "archive.pt"))
    found = read_pretrained(None, str(tmp_path / "archive.pt"), tmp_path).state_dict()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


@pytest.mark.parametrize("content", [{"a": torch.zeros(1)}, None])
def test_a_file_without_a_clip_is_told(tmp_path, content):
    path = tmp_path / "other.pt"
    if content:
        torch.save(content, path)
    else:
        path.write_bytes(b"no archive")
    with pytest.raises(DarkroomError, match=f"the CLIP in {path}, which `train_clip.pretrained` names, cannot be read"):
        read_pretrained(None, str(path), tmp_path)


def test_a_pickle_that_runs_code_is_not_opened(tmp_path):
    class Evil:
        def __reduce__(self):
            return (print, ("ran",))

    torch.save({"visual.proj": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(DarkroomError, match="cannot be read"):
        read_pretrained(None, str(tmp_path / "evil.pt"), tmp_path)


def test_the_names_are_openais():
    assert list(Name.__args__) == clip.available_models()


def test_a_text_that_is_too_long_is_named_or_cut():
    texts = ["short", "one two three four five six seven eight nine"]
    with pytest.raises(DarkroomError, match=r"'one two .*' of image b is longer than CLIP's context of 6 tokens"):
        tokens_of(texts, 6, False, lambda number: f"image {'ab'[number]}")
    assert (tokens_of(texts, 6, True) == clip.tokenize(texts, 6, truncate=True).numpy()).all()


def test_random_numbers_outside_are_not_touched(folder):
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    load_clip(folder)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_without_a_clip_it_is_said_who_left_it_out(tmp_path):
    write_manifest(tmp_path, "clip", source="none", weights=None, files={})
    with pytest.raises(ArtifactError, match=r"holds no CLIP: set `train_clip\.source`"):
        load_clip(tmp_path)
