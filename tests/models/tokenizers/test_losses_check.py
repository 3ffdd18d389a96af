"""What `darkroom check` says of perceptual losses and discriminators, before any work."""

from pathlib import Path

import pytest

from darkroom.check.check import read_params
from darkroom.errors import DarkroomError
from helpers import DIGITS

ROOT = Path(__file__).parents[3]
LPIPS = {"network": "lpips", "weight": 1.0}


@pytest.fixture
def attempt(checked):
    """Return a function that checks a clone whose section of the tokenizer has other values."""

    def attempted(size=32, perceptual=None, adversarial=None, levels=4, **changes):
        def change(values):
            values["ingest"]["image_size"] = size
            values["train_clip"]["source"] = "none"  # what else has a size is not asked about here
            for unet in values["train_decoder"]["unets"].values():
                unet["frozen"] = True
            values["train_teacher"]["model"]["channels"] = [16] * levels
            values["train_tokenizer"] |= changes
            values["train_tokenizer"]["kl"]["perceptual"] |= perceptual or {}
            values["train_tokenizer"]["kl"]["adversarial"] |= adversarial or {}

        return checked(change)

    return attempted


def test_what_fits_is_valid(attempt):
    assert "fit each other" in attempt(perceptual={"network": "teacher", "weight": 1.0}, adversarial={"weight": 0.5})
    assert "fit each other" in attempt(perceptual=LPIPS, teacher="data/none")
    Path("vgg16.pth").touch()
    assert "fit each other" in attempt(perceptual=LPIPS, teacher="vgg16.pth")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"perceptual": {"network": "teacher", "weight": 1.0}, "teacher": "data/none"}, "set it to models/teacher"),
        ({"perceptual": LPIPS}, "set it to a file with torchvision's weights of VGG16, or data/none"),
        ({"perceptual": LPIPS, "teacher": "vgg.pth"}, r"`train_tokenizer\.teacher` is vgg\.pth, which does not exist"),
        ({"adversarial": {"weight": 0.5, "start": 8000}}, r"start` is 8,000, but the training has 4,800 images"),
        (
            {"perceptual": {"network": "vgg16", "weight": 1.0}, "teacher": "data/none", "size": 16},
            r"`train_tokenizer\.kl\.perceptual` needs at least 32 pixels",
        ),
        (
            {"adversarial": {"weight": 1.0, "channels": [16, 16, 16, 16]}, "size": 16},
            r"`train_tokenizer\.kl\.adversarial` needs at least 32 pixels.*fewer levels",
        ),
        ({"adversarial": {"weight": 1.0, "adaptive": "perceptual"}}, "there is no perceptual loss"),
    ],
)
def test_what_does_not_fit_is_told(attempt, changes, told):
    with pytest.raises(DarkroomError, match=told) as fault:
        attempt(**changes)
    assert "\n" not in str(fault.value)


def test_a_folder_of_published_weights_that_is_not_there_is_told(attempt):
    values = read_params(DIGITS)["train_tokenizer"]["pretrained"]
    chosen = {**values, "name": None, "folder": "some/vae"}
    with pytest.raises(DarkroomError, match=r"`train_tokenizer\.pretrained\.folder` is some/vae, which does not exist"):
        attempt(kind="pretrained", pretrained=chosen)


def test_a_teacher_with_more_levels_than_the_images_have_halves_is_refused(attempt):
    teacher = {"network": "teacher", "weight": 1.0}
    assert "fit each other" in attempt(16, perceptual=teacher)
    with pytest.raises(DarkroomError, match=r"`train_teacher.model.channels` needs at least 64 pixels a side"):
        attempt(32, perceptual=teacher, levels=7)
