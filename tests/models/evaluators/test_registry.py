from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional

from darkroom.errors import DarkroomError
from darkroom.models.clip.load import PICKLE, save_clip
from darkroom.models.clip.network import MEAN, STD, Contrastive
from darkroom.models.evaluators.clip_features import PUBLISHED
from darkroom.models.evaluators.registry import RESIZE, Source, open_extractor
from darkroom.models.evaluators.settings import cache, fits
from darkroom.params.reference_stats import ReferenceStats
from models.clip.clips import SIZE

IMAGES = torch.randint(0, 256, (3, 3, 20, 20), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_each_has_a_text_on_its_resize_and_unknown_ones_are_refused() -> None:
    assert set(RESIZE) == {"in_domain", "inception", "dinov2", "clip"}
    with pytest.raises(DarkroomError, match="no extractor `resnet`: choose one of in_domain, inception"):
        open_extractor("resnet", Source())


def test_clip_sees_images_as_cmmd_does(tmp_path: Path) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = Contrastive({**SIZE, "image_size": 16})
    save_clip(tmp_path, network)
    found = open_extractor("clip", Source(tmp_path / PICKLE))
    assert (found.dim, len(found.sha256), found.resize) == (8, 64, RESIZE["clip"])
    x = functional.interpolate(IMAGES.float() / 255, size=(16, 16), mode="bicubic", antialias=False)
    mean, std = (torch.tensor(values)[:, None, None] for values in (MEAN, STD))
    with torch.inference_mode():
        expected = network.eval().encode_image((x - mean) / std)
    torch.testing.assert_close(found.network.features(IMAGES), expected, atol=1e-2, rtol=1e-2)  # stored in float16
    assert found.network.features(IMAGES[:, :1, :, :12]).shape == (3, 8)  # grey, and no square
    with pytest.raises(DarkroomError) as error:
        open_extractor("clip", Source(tmp_path / "nowhere.pt"))
    for words in (str(tmp_path / "nowhere.pt"), PUBLISHED.url, PUBLISHED.sha256, "`reference_stats.clip.weights`"):
        assert words in str(error.value)


def test_a_missing_file_is_named_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))

    def checked(name: str, **given: str) -> None:
        section = ReferenceStats(extractors=["in_domain", name], **{name: given})  # type: ignore[arg-type, list-item]
        fits(SimpleNamespace(reference_stats=section))

    assert cache() == PUBLISHED.cached.parent
    checked("dinov2")  # is downloaded
    with pytest.raises(DarkroomError) as error:
        checked("clip")
    for words in ("`reference_stats.clip.weights`", str(PUBLISHED.cached), PUBLISHED.url, PUBLISHED.sha256):
        assert words in str(error.value)
    with pytest.raises(DarkroomError, match=r"`reference_stats\.dinov2\.weights` is no\.pth, but no\.pth does not"):
        checked("dinov2", weights="no.pth")
    PUBLISHED.cached.parent.mkdir(parents=True)
    PUBLISHED.cached.touch()
    checked("clip")
