"""What the recipes of all kinds of tokenizers share: what they refuse before they build."""

import pytest
import torch

from darkroom.errors import DarkroomError
from darkroom.stages.train_tokenizer import RECIPES
from helpers import training
from recipes.small_vqgan import Pictures
from recipes.small_vqgan import section as vqgan
from tokenizers.dvae_reference import settings as dvae
from tokenizers.making_vq_ar import settings as vq_ar
from tokenizers.sections import kl

SECTIONS = {"kl": kl, "dvae": dvae, "vqgan": vqgan, "vq_ar": vq_ar}
FACTORS = {"kl": 2, "dvae": 4, "vqgan": 4, "vq_ar": 4}


def build(kind, shape=(3, 16, 16), **changes):
    torch.manual_seed(0)
    return RECIPES[kind].build(SECTIONS[kind](**changes), training(), shape, Pictures(), Pictures())


def test_each_kind_is_tried():
    assert SECTIONS.keys() == RECIPES.keys()


@pytest.mark.parametrize("kind", RECIPES)
@pytest.mark.parametrize("size", [(17, 17), (16, 32)])
def test_images_that_a_kind_does_not_divide_are_refused(kind, size):
    with pytest.raises(DarkroomError) as fault:
        build(kind, (3, *size))
    factor, (height, width) = FACTORS[kind], size
    assert str(fault.value) == (
        f"`train_tokenizer.{kind}`: one place of the latent stands for {factor} x {factor} pixels, and images of "
        f"{width} x {height} pixels are not squares whose side is a multiple of {factor}: change `ingest.image_size`, "
        "or the section."
    )


@pytest.mark.parametrize("kind", ["vqgan", "vq_ar"])
def test_more_codes_than_an_update_has_latents_are_refused_before_anything_is_built(kind, monkeypatch):
    monkeypatch.setattr(torch.nn.Module, "__init__", None)
    with pytest.raises(DarkroomError, match=rf"`train_tokenizer\.{kind}`: `codebook_size` is 256, and k-means begins"):
        build(kind, codebook_size=256)
