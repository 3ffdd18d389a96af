"""No tokenizer: pixels are the latents, whatever they are stored as, and come back as they were."""

from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from darkroom.artifacts.manifest import read_manifest
from darkroom.check.check import read_params
from darkroom.data.catalog import Selection
from darkroom.data.images import ImageSpec
from darkroom.data.latent_file import to_bfloat16, to_float32
from darkroom.errors import DarkroomError
from darkroom.models.tokenizers.identity import IdentityTokenizer, of_shape
from darkroom.models.tokenizers.protocol import load_tokenizer
from darkroom.models.tokenizers.sections import Identity
from darkroom.models.tokenizers.settings import Params
from darkroom.stages import train_tokenizer

ROOT = Path(__file__).parents[3]
LEVELS = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16)


def tokenizer() -> IdentityTokenizer:
    return of_shape(Identity(), (1, 16, 16))


def test_latents_are_pixels_between_minus_one_and_one() -> None:
    latents, logvar = tokenizer().encode(LEVELS)
    assert logvar is None and latents.dtype == torch.float32 and latents.shape[1:] == tokenizer().latent_shape
    torch.testing.assert_close(latents.double(), LEVELS.double() / 127.5 - 1, rtol=0, atol=1e-7)


def test_every_level_comes_back() -> None:
    latents, _ = tokenizer().encode(LEVELS)
    assert torch.equal(tokenizer().decode(latents), LEVELS)
    assert torch.equal(tokenizer().reconstruct(LEVELS), LEVELS)


def test_every_level_comes_back_from_stored_bfloat16() -> None:
    """Levels are 2/255 apart, and a bfloat16 below 1 is at most 2^-9 off: the nearest level is the same."""
    stored = to_bfloat16(tokenizer().encode(LEVELS)[0].numpy())
    assert torch.equal(tokenizer().decode(torch.from_numpy(to_float32(stored))), LEVELS)


def test_images_of_another_shape_are_refused() -> None:
    with pytest.raises(DarkroomError, match=r"needs images of shape \(1, 16, 16\), not \(1, 8, 8\)"):
        tokenizer().encode(LEVELS[..., :8, :8])


def test_the_stage_writes_it_and_it_is_opened_again(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    selection = Selection({}, ImageSpec(size=16, channels="L", format="png"), "0" * 64)
    monkeypatch.setattr(train_tokenizer, "load_selection", lambda: selection)
    values = read_params(Path("params.yaml"))
    chosen = {**values["train_tokenizer"], "kind": "identity"}
    params = Params.model_validate({"run": {**values["run"], "device": "cpu"}, "train_tokenizer": chosen})
    assert params.idle == "`train_tokenizer.kind` is identity, which is taken as it is"
    train_tokenizer.run(params)
    manifest = read_manifest(Path("models/tokenizer"), "tokenizer")
    assert (manifest["tokenizer_kind"], manifest["latent_shape"]) == ("identity", [1, 16, 16])
    opened, _ = load_tokenizer(Path("models/tokenizer"), (1, 16, 16))
    assert torch.equal(opened.reconstruct(LEVELS), LEVELS)


@pytest.mark.parametrize("asked", [{"training": {"images": 3}}, {"frozen": True}])
def test_keys_of_a_training_are_refused(asked: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=r"nothing is trained|extra_forbidden"):
        Identity.model_validate(asked)
