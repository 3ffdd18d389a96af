from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from darkroom.artifacts.manifest import sha256_file
from darkroom.errors import DarkroomError
from darkroom.models.evaluators.extractor import Classifier
from darkroom.models.evaluators.load import extract, stream_views
from darkroom.models.evaluators.registry import Source, open_extractor

CPU = torch.device("cpu")
IMAGES = torch.randint(0, 256, (70, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def network() -> Classifier:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Classifier(3, 10, [8, 16], 12, 0.5)


def test_bits_do_not_depend_on_how_many_are_asked_for(network: Classifier, whole: Tensor) -> None:
    assert (whole.shape, whole.dtype) == ((70, 12), torch.float32)
    for n in (1, 5, 31, 32, 33, 64, 69):
        assert torch.equal(extract(network, [IMAGES[:n]], 32, CPU), whole[:n])
    with torch.inference_mode():
        torch.testing.assert_close(whole, network.eval().features(IMAGES))


@pytest.fixture(scope="module")
def whole(network: Classifier) -> Tensor:
    return extract(network, [IMAGES], 32, CPU)


@settings(deadline=None, max_examples=5)
@given(cuts=st.lists(st.integers(0, 70), max_size=6))
def test_bits_do_not_depend_on_how_images_are_grouped(network: Classifier, whole: Tensor, cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), 70]
    groups = [IMAGES[a:b] for a, b in pairwise(edges)]
    arrays = [group.numpy() for group in groups]
    assert torch.equal(extract(network, arrays, 32, CPU), whole)


class Spy:
    """A network that notes what it is shown."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []

    def features(self, images: Tensor) -> Tensor:
        self.shapes.append(tuple(images.shape))
        return images.flatten(1)[:, :2].float()

    def to(self, device: torch.device) -> "Spy":
        return self

    def eval(self) -> "Spy":
        return self


def test_compute_batch_is_fixed_and_results_stream() -> None:
    spy = Spy()
    parts = (views.pool for views in stream_views(spy, iter([IMAGES[:20], IMAGES[20:70]]), 32, CPU))
    first = next(parts)
    assert spy.shapes == [(32, 3, 16, 16)]  # nothing is computed ahead
    sizes = [len(part) for part in [first, *parts]]
    assert (sizes, set(spy.shapes)) == ([32, 32, 6], {(32, 3, 16, 16)})
    first += 1  # an ordinary tensor


def test_no_image_is_refused() -> None:
    for nothing in ([], [IMAGES[:0]]):
        with pytest.raises(DarkroomError, match="no images to extract features from"):
            extract(Spy(), nothing, 8, CPU)


def test_in_domain_comes_with_the_hash_of_its_weights(network: Classifier, tmp_path: Path) -> None:
    network.save_pretrained(tmp_path)
    found, sha256, dim, _ = open_extractor("in_domain", Source(tmp_path))
    assert (sha256, dim) == (sha256_file(tmp_path / "model.safetensors"), 12)
    assert torch.equal(extract(found, [IMAGES], 32, CPU), extract(network, [IMAGES], 32, CPU))


def test_inception_is_handed_its_file_and_hash(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    path.write_bytes(b"another")
    with pytest.raises(DarkroomError, match=f"has the sha256 .*, not {'0' * 64}"):
        open_extractor("inception", Source(path, "0" * 64))
