"""Images of another shape than a tokenizer's are refused by every kind, by the same sentence."""

import pytest
import torch

from darkroom.errors import DarkroomError
from darkroom.models.tokenizers.dvae.tokenizer import DiscreteVAE
from darkroom.models.tokenizers.kl.network import KLAutoencoder, build
from darkroom.models.tokenizers.protocol import Codes
from darkroom.models.tokenizers.vqgan.network import VQGANTokenizer, config_of
from models.tokenizers.dvae_reference import settings as dvae
from models.tokenizers.making_vq_ar import network as vq_ar
from models.tokenizers.sections import kl
from models.tokenizers.small_vqgan import section as vqgan

SHAPE = (3, 16, 16)
KINDS = {
    "kl": lambda: KLAutoencoder(build(kl(), 3, 16)),
    "dvae": lambda: DiscreteVAE.from_settings(dvae(), SHAPE),
    "vqgan": lambda: VQGANTokenizer(config_of(vqgan(), SHAPE)),
    "vq_ar": vq_ar,
}
WRONG = [(4, 16, 16), (3, 16, 20)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", WRONG, ids=str)
def test_images_of_another_shape_are_refused(kind, shape):
    model = KINDS[kind]().eval()
    images = torch.zeros(2, *shape, dtype=torch.uint8)
    asked = [model.encode, model.reconstruct, *([model.encode_codes] if isinstance(model, Codes) else [])]
    for ask in asked:
        with pytest.raises(DarkroomError) as fault:
            ask(images)
        assert str(fault.value) == (
            f"the tokenizer needs images of shape (3, 16, 16), not {shape}: run `dvc repro train_tokenizer`."
        )
    assert model.encode(torch.zeros(2, *SHAPE, dtype=torch.uint8))[0].shape == (2, *model.latent_shape)
