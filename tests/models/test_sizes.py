"""Images of any size: every tokenizer learns and reconstructs them, and the networks behind it take its latents."""

import numpy as np
import pytest
import torch

from darkroom.models.decoder.network import Conditions
from darkroom.models.evaluators.scene_reader import SceneReader
from darkroom.models.generators.dit.classifier import Classifier, ClassifierConfig
from darkroom.models.generators.dit.config import DiTConfig
from darkroom.models.generators.dit.network import DiT
from darkroom.models.tokenizers.dvae.recipe import DVAERecipe
from darkroom.models.tokenizers.kl.recipe import KLRecipe
from darkroom.models.tokenizers.protocol import Codes
from darkroom.models.tokenizers.vq_ar.recipe import VQARRecipe
from darkroom.models.tokenizers.vqgan.recipe import VQGANRecipe
from darkroom.training.recipe import Batch
from helpers import training
from models.decoder.small_unets import unet
from models.tokenizers.dvae_reference import settings as dvae
from models.tokenizers.making_vq_ar import settings as vq_ar
from models.tokenizers.sections import kl
from models.tokenizers.small_vqgan import section as vqgan

WORDS = {"colour": ("red", "blue"), "form": ("circle", "star"), "size": ("small", "large")}
RECIPES = {
    "kl": (KLRecipe, kl(channels=[8] * 5)),
    "dvae": (DVAERecipe, dvae(layers=4)),
    "vqgan": (VQGANRecipe, vqgan(layers=4)),
    "vq_ar": (VQARRecipe, vq_ar(patch=16)),
}


class Pictures:
    """Four images of noise."""

    def __init__(self, size):
        self.images = np.random.default_rng(0).integers(0, 256, (4, 3, size, size), dtype=np.uint8)

    def __len__(self):
        return len(self.images)

    def __getitems__(self, rows, positions=None):
        return {"images": self.images[list(rows)]}


@pytest.mark.parametrize("kind", RECIPES)
def test_every_tokenizer_learns_and_reconstructs_images_of_any_size(kind):
    """Of 70 pixels, which 16 does not divide."""
    make, settings = RECIPES[kind]
    torch.manual_seed(0)
    data = Pictures(70)
    recipe = make(settings, training(), (3, 70, 70), data, data)
    images = torch.from_numpy(data.images)
    batch = Batch(np.arange(4), {"images": images})
    recipe.loss(batch)["loss"].backward()
    assert all(parameter.grad is not None for name, parameter in recipe.model.named_parameters() if "decoder" in name)
    model = recipe.model.eval()
    assert model.latent_shape[1:] == (5, 5)
    latents, _ = model.encode(images)
    assert latents.shape == (4, *model.latent_shape)
    assert model.decode(latents).shape == model.reconstruct(images).shape == images.shape
    if isinstance(model, Codes):
        assert model.decode_codes(model.encode_codes(images)).shape == images.shape


@pytest.mark.parametrize("kind", RECIPES)
def test_the_last_row_and_column_go_on(kind):
    """An image of 70 pixels has the latents of one of 80 that goes on with its last pixels, and its pixels back."""
    make, settings = RECIPES[kind]
    models = {}
    for size in (70, 80):
        torch.manual_seed(0)
        models[size] = make(settings, training(), (3, size, size), Pictures(size), Pictures(size)).model.eval()
    images = torch.from_numpy(Pictures(70).images)
    whole = torch.from_numpy(np.pad(images, ((0, 0), (0, 0), (0, 10), (0, 10)), mode="edge"))
    small, large = models[70].encode(images)[0], models[80].encode(whole)[0]
    assert torch.equal(small, large)
    assert torch.equal(models[70].decode(small), models[80].decode(large)[..., :70, :70])


@pytest.mark.parametrize(("size", "patch"), [(5, 2), (3, 4)])
def test_a_transformer_takes_latents_that_its_patches_do_not_divide(size, patch):
    torch.manual_seed(0)
    model = DiT(DiTConfig(4, size, 3, 32, 1, 2, patch, learned_variance=True, rope=True))
    torch.nn.init.normal_(model.head.linear.weight)
    x, times, labels = torch.randn(2, 4, size, size), torch.tensor([1.0, 500.0]), torch.tensor([0, 2])
    output = model(x, times, labels)
    assert output.shape == (2, 8, size, size) and (output != 0).all()
    side = -(-size // patch) * patch
    whole = DiT(DiTConfig(4, side, 3, 32, 1, 2, patch, learned_variance=True, rope=True))
    whole.load_state_dict(model.state_dict())
    filled = torch.nn.functional.pad(x, (0, side - size, 0, side - size))
    assert torch.equal(output, whole(filled, times, labels)[..., :size, :size])
    classifier = Classifier(ClassifierConfig(4, size, 3, 32, 1, 2, patch))
    x.requires_grad_()
    classifier.log_probability(x, times, labels).sum().backward()
    assert (x.grad != 0).all()


def test_a_unet_takes_images_that_its_levels_do_not_divide():
    size = 9
    model = unet(
        size=size,
        channels=(8, 16, 16),
        attention=(False, False, True),
        patch=2,
        low=True,
        self_condition=True,
        embed_dim=6,
        image_map=2,
    )
    x = torch.randn(2, 1, size, size)
    conditions = Conditions(image=torch.randn(2, 6), low=torch.randn(2, 1, size, size))
    output = model(x, torch.tensor([1.0, 500.0]), conditions, torch.randn(2, 1, size, size))
    assert output.shape == x.shape and (output != 0).all()


def test_the_scene_reader_sees_its_cells_in_images_of_any_size():
    torch.manual_seed(0)
    reader = SceneReader(WORDS, [8, 8], 1).eval()
    for size in (32, 70, 72):
        assert reader(torch.zeros(1, 3, size, size)).shape[:2] == (1, 64)
