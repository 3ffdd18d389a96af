import io
import urllib.error
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from darkroom.artifacts.manifest import sha256_file
from darkroom.data.colours import to_rgb
from darkroom.errors import DarkroomError
from darkroom.models.evaluators.inception import KEYS, PUBLISHED, Inception, open_inception, pillow
from darkroom.models.evaluators.published import read_published
from darkroom.params.section import NO_FILE
from models.evaluators.weights import write_random_weights


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file in the real format, with random weights."""
    return write_random_weights(tmp_path_factory.mktemp("inception") / "weights.pth")


@pytest.fixture(scope="module")
def network(weights: Path) -> Inception:
    state = torch.random.get_rng_state()
    network = open_inception(weights, sha256_file(weights))[0]
    assert torch.equal(state, torch.random.get_rng_state())  # no draw is seen outside
    return network


@pytest.fixture(scope="module")
def theirs(weights: Path) -> Any:
    """torch-fidelity's network of the same file."""
    from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3

    return FeatureExtractorInceptionV3("x", ["2048", "logits_unbiased"], feature_extractor_weights_path=str(weights))


def images(n: int, channels: int = 3, side: int = 32) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (n, channels, side, side), dtype=torch.uint8, generator=generator)


def resize_tf1(image: np.ndarray, side: int) -> np.ndarray:
    """Bilinear as TensorFlow 1 does it: output pixel i is at i · in / out, and no pixel has a centre."""
    height, width = image.shape
    out = np.empty((side, side))
    for i in range(side):
        for j in range(side):
            y, x = i * height / side, j * width / side
            top, left = int(y), int(x)
            bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
            dy, dx = y - top, x - left
            above = image[top, left] * (1 - dx) + image[top, right] * dx
            below = image[bottom, left] * (1 - dx) + image[bottom, right] * dx
            out[i, j] = above * (1 - dy) + below * dy
    return out


def test_features_and_the_resize_of_tensorflow_1(network: Inception, theirs: Any) -> None:
    seen: list[Tensor] = []
    hook = network.network.Conv2d_1a_3x3.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    batch = images(2)
    with torch.inference_mode():
        features = network.features(batch)
    hook.remove()
    assert (features.shape, features.dtype) == ((2, 2048), torch.float32)
    assert features.std() > 0
    expected = (resize_tf1(batch[1, 2].numpy().astype(np.float64), 299) - 128) / 128
    np.testing.assert_allclose(seen[0][1, 2], expected, atol=1e-4)  # float32 of 255
    # The weights are really those of the file: torch-fidelity's own reading gives the same bits.
    with torch.inference_mode():
        assert torch.equal(theirs(batch)[0], features)


def test_logits_and_places(network: Inception, theirs: Any) -> None:
    batch = images(2)
    seen: list[Tensor] = []
    hook = network.network.Mixed_6d.branch1x1.register_forward_hook(lambda _, __, out: seen.append(out.clone()))
    with torch.inference_mode():
        pool, spatial, logits = network.outputs(batch).split(network.widths, dim=1)
    hook.remove()
    with torch.inference_mode():
        expected = theirs(batch)
    assert torch.equal(pool, expected[0])
    assert torch.equal(logits, expected[1])
    # ADM's order: rows, columns, channels; after the ReLU.
    assert torch.equal(spatial[1].reshape(17, 17, 7)[3, 5], seen[0][1, :7, 3, 5])
    assert spatial.min() == 0 and spatial.std() > 0


def test_the_resize_of_clean_fid(network: Inception, weights: Path) -> None:
    cubic, found = open_inception(weights, None, resize=pillow)
    assert found == sha256_file(weights)
    batch = images(2, side=400)
    wide = pillow(batch)
    for channel in range(3):
        plane = Image.fromarray(batch[1, channel].numpy().astype(np.float32), mode="F")
        expected = np.asarray(plane.resize((299, 299), resample=Image.BICUBIC)).clip(0, 255)
        np.testing.assert_array_equal(wide[1, channel], expected)
    assert (wide % 1).std() > 0.1  # not rounded
    whole = images(2, side=299)  # of 299 pixels nothing is resized, and both conventions are one
    with torch.inference_mode():
        torch.testing.assert_close(cubic.features(whole), network.features(whole))
        assert not torch.allclose(cubic.features(batch), network.features(batch))


def test_without_a_download_one_sentence_names_file_hash_and_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch_fidelity.feature_extractor_inceptionv3 import URL_INCEPTION_V3

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(DarkroomError) as error:
        open_inception(Path(NO_FILE), None, download=False)
    place = tmp_path / "hub" / "checkpoints" / "weights-inception-2015-12-05-6726825d.pth"
    for words in (URL_INCEPTION_V3, str(place), "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2"):
        assert words in str(error.value)


def test_grey_and_transparent_images() -> None:
    grey = images(2, 1, 4)
    assert torch.equal(to_rgb(grey), torch.cat([grey] * 3, 1))
    assert torch.equal(to_rgb(images(2, 3, 4)), images(2, 3, 4))
    clear = images(2, 4, 8)
    colour, alpha = clear[:, :3].double(), clear[:, 3:].double() / 255
    assert torch.equal(to_rgb(clear), (colour * alpha + 255 * (1 - alpha)).round().to(torch.uint8))
    for wrong in (images(2, 2, 4), images(2, 3, 4).float(), images(2, 3, 4)[0]):
        with pytest.raises(DarkroomError, match="1, 3 or 4 channels"):
            to_rgb(wrong)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A file of one tensor."""
    torch.save({"weight": torch.zeros(2)}, tmp_path / "small.pth")
    return tmp_path / "small.pth"


def test_a_flipped_byte_is_refused_before_reading(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, content = sha256_file(small), bytearray(small.read_bytes())
    content[len(content) // 2] ^= 1
    small.write_bytes(content)
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("the file was read"))
    with pytest.raises(DarkroomError, match=f"has the sha256 {sha256_file(small)}, not {expected}"):
        read_published(small, expected, PUBLISHED, KEYS)


class Malice:
    """A pickle that runs a program when it is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def test_a_program_in_the_file_does_not_run(tmp_path: Path) -> None:
    path, mark = tmp_path / "malice.pth", tmp_path / "ran"
    torch.save({"weight": Malice(mark)}, path)
    with pytest.raises(DarkroomError, match="does not hold the weights"):
        open_inception(path, sha256_file(path))
    assert not mark.exists()
    torch.load(path, weights_only=False)
    assert mark.exists()  # it would have run


@pytest.mark.parametrize("value", [{"weight": torch.zeros(2)}, [torch.zeros(2)], {"weight": "text"}])
def test_other_tensors_are_refused(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "other.pth"
    torch.save(value, path)
    with pytest.raises(DarkroomError, match=r"does not hold the weights.*reference_stats\.inception\.weights"):
        open_inception(path, sha256_file(path))


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DarkroomError, match=r"`reference_stats\.inception\.weights`.*nowhere\.pth"):
        open_inception(tmp_path / "nowhere.pth", "0" * 64)
    path = tmp_path / "noise.pth"
    path.write_bytes(b"noise")
    with pytest.raises(DarkroomError, match="does not hold the weights"):
        open_inception(path, sha256_file(path))


def test_without_internet_one_sentence_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_fidelity.feature_extractor_inceptionv3 import URL_INCEPTION_V3

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))

    def offline(*_: Any, **__: Any) -> None:
        raise urllib.error.URLError("no route")

    monkeypatch.setattr(torch.hub, "urlopen", offline)
    with pytest.raises(DarkroomError) as error:
        open_inception(Path(NO_FILE), "0" * 64)
    place = tmp_path / "hub" / "checkpoints" / "weights-inception-2015-12-05-6726825d.pth"
    for words in (URL_INCEPTION_V3, str(place), "`reference_stats.inception.weights`", "no route"):
        assert words in str(error.value)
    assert list(place.parent.iterdir()) == []


class Response(io.BytesIO):
    """What urlopen returns, as far as torch hub reads it."""

    def info(self) -> Any:
        return type("Headers", (), {"get_all": lambda *_: None})()


def test_download_is_checked_kept_and_not_repeated(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch_fidelity.feature_extractor_inceptionv3 import URL_INCEPTION_V3

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    asked: list[str] = []

    def online(request: Any) -> Response:
        asked.append(request.full_url)
        return Response(small.read_bytes())

    monkeypatch.setattr(torch.hub, "urlopen", online)
    with pytest.raises(DarkroomError, match="does not have the hash") as error:
        read_published(Path(NO_FILE), "0" * 64, PUBLISHED, KEYS)
    assert sha256_file(small) in str(error.value) and "0" * 64 in str(error.value)
    assert list(PUBLISHED.cached.parent.iterdir()) == []
    for _ in range(2):
        read_published(Path(NO_FILE), sha256_file(small), PUBLISHED, KEYS)
    assert asked == [URL_INCEPTION_V3] * 2
    assert PUBLISHED.cached.read_bytes() == small.read_bytes()
