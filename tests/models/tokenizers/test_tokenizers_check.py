"""What `darkroom check` says of each kind of tokenizer that does not fit its images, before any work."""

import json
from pathlib import Path

import pytest

from darkroom.errors import DarkroomError

ROOT = Path(__file__).parents[3]
CONFIG = {"_class_name": "AutoencoderKL", "in_channels": 3, "block_out_channels": [8, 8, 8, 8]}


def lay(values, changes):
    """Change values under dotted keys."""
    for key, value in changes.items():
        *path, last = key.split(".")
        place = values
        for name in path:
            place = place[name]
        assert last in place, key
        place[last] = value


@pytest.fixture
def attempt(checked):
    """Return a function that checks a clone with another kind and other values."""

    def attempted(kind, **changes):
        def change(values):
            values["train_tokenizer"]["kind"] = kind
            lay(values, {key.replace("__", "."): value for key, value in changes.items()})

        return checked(change)

    return attempted


def refused(attempt, kind, told, **changes):
    """Check that values are refused with a sentence."""
    with pytest.raises(DarkroomError) as fault:
        attempt(kind, **changes)
    assert told in str(fault.value) and "\n" not in str(fault.value), fault.value


KINDS = ("kl", "dvae", "vqgan", "vq_ar")


@pytest.mark.parametrize(("kind", "channels"), [*((kind, "RGBA") for kind in (*KINDS, "identity")), ("kl", "L")])
def test_a_tokenizer_that_is_made_here_has_the_channels_of_its_images(attempt, kind, channels):
    assert "fit each other" in attempt(kind, ingest__channels=channels)


def test_a_size_that_does_not_divide_is_filled_up(attempt):
    """Also where the patch of the transformer does not divide the latent, as 2 does not 9."""
    unets = {"base.size": 11, "up.size": 33, "up.low_size": 11}
    changes = {f"train_decoder.unets.{key}": size for key, size in unets.items()}
    assert "fit each other" in attempt("vq_ar", ingest__image_size=33, **changes)


def test_more_codes_than_can_be_counted(attempt):
    told = "`train_tokenizer.dvae.codebook_size` is 2097152: a codebook has at most 1,048,576 codes"
    refused(attempt, "dvae", told, **{"train_tokenizer.dvae.codebook_size": 2**21})


@pytest.mark.parametrize("kind", ["vqgan", "vq_ar"])
def test_more_codes_than_an_update_has_latents(attempt, kind):
    told = f"`train_tokenizer.{kind}`: `codebook_size` is 65,536, but k-means starts from the vectors of one batch"
    refused(attempt, kind, told, **{f"train_tokenizer.{kind}.codebook_size": 2**16})
    switch = "vqgan.vq.kmeans_init" if kind == "vqgan" else "vq_ar.kmeans_init"
    changes = {f"train_tokenizer.{kind}.codebook_size": 2**16, f"train_tokenizer.{switch}": False}
    assert "fit each other" in attempt(kind, **changes)


@pytest.mark.parametrize("kind", ["kl", "vqgan"])
def test_codes_of_what_has_codes(attempt, kind):
    """And a diffusion transformer trains on them."""
    if kind == "kl":
        told = "`encode_latents.latents` is codes, and `train_tokenizer.kind` is kl, which has no codes: set the former"
        refused(attempt, kind, told, encode_latents__latents="codes")
    else:
        assert "fit each other" in attempt(kind, encode_latents__latents="codes")


# ---------------------------------------------------------------------------------------------------------------------
# Published weights


@pytest.fixture
def published(attempt):
    """Return a function that checks a clone with an autoencoder in the folder vae."""
    folder = Path("vae")
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "diffusion_pytorch_model.safetensors").touch()
    section = {"name": None, "revision": None, "folder": "vae"}
    where = {f"train_tokenizer.pretrained.{key}": value for key, value in section.items()}

    def attempted(kind="pretrained", **changes):
        return attempt(kind, **{**where, **changes})

    return attempted


def test_published_weights_that_fit(published, attempt):
    assert "fit each other" in published()
    assert "fit each other" in attempt("pretrained")  # by name: nothing is asked of a network here
    refused(
        attempt, "pretrained", "sd-vae-ft-ema needs images of 3 channels, but these have 4", ingest__channels="RGBA"
    )


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"ingest.channels": "RGBA"}, "vae needs images of 3 channels, but these have 4: set `ingest.channels`"),
        (
            {"train_tokenizer.pretrained.folder": "gone"},
            "`train_tokenizer.pretrained.folder` is gone, which does not exist: A local folder with config.json",
        ),
        ({"train_tokenizer.pretrained.subfolder": "unet"}, "vae holds no config.json of a diffusers autoencoder"),
    ],
)
def test_published_weights_that_do_not_fit(published, changes, told):
    refused(published, "pretrained", told, **changes)


def test_published_weights_that_are_not_there(published):
    Path("vae/diffusion_pytorch_model.safetensors").rename("vae/diffusion_pytorch_model.bin")
    refused(published, "pretrained", "vae has no weights: put diffusion_pytorch_model.safetensors beside config.json")


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("train_tokenizer.teacher", "Weights of the perceptual network: models/teacher"),
        ("train_generator.training.init.folder", "A folder with weights, for example models/tokenizer of another run"),
    ],
)
def test_a_file_of_weights_that_is_missing_is_named_by_its_key(attempt, key, told):
    refused(attempt, "kl", f"`{key}` is nowhere.pth, which does not exist: {told}", **{key: "nowhere.pth"})


@pytest.mark.parametrize(
    ("source", "key", "kind"),
    [
        ("train_tokenizer.vq_ar.label_dropout", "sample_tokenizer.guidance", "vq_ar"),
        ("train_generator.dit.diffusion.label_dropout", "sample_generator.dit.guidance", "kl"),
    ],
)
def test_guidance_needs_a_model_that_knows_no_class(attempt, source, key, kind):
    untrained = {source: 0.0}
    refused(attempt, kind, f"`{key}` is 3.0, but `{source}` is 0", **{key: 3.0}, **untrained)
    assert "fit each other" in attempt(kind, **{key: 1.0}, **untrained)


def test_scores_while_training_are_guided_by_a_model_that_knows_no_class(attempt):
    """The section itself refuses it, so that the stage does, whoever starts it."""
    names = {"every": 640, "extractor": "models/extractor", "reference": "data/reference"}
    asked = {f"train_generator.evaluate.{name}": value for name, value in names.items()}
    untrained = {"train_generator.dit.diffusion.label_dropout": 0.0, "sample_generator.dit.guidance": 1.0}
    refused(
        attempt,
        "kl",
        "dit.sampling.guidance is 1.5, but dit.diffusion.label_dropout is 0",
        **asked,
        **untrained,
    )
    assert "fit each other" in attempt("kl", **asked | {"train_generator.dit.sampling.guidance": 1.0}, **untrained)
    assert "fit each other" in attempt("kl", **asked | {"train_generator.evaluate.every": 0}, **untrained)
    assert "fit each other" in attempt("kl", **asked)


def test_a_codebook_that_moves_by_more_than_averages_is_not_foreseen(attempt):
    told = "logits_codebook: after needs kmeans_init: false"
    after = {"train_tokenizer.vq_ar.logits_codebook": "after"}
    refused(attempt, "vq_ar", told, **after)
    genie = {"train_tokenizer.vq_ar.kmeans_init": False, "train_tokenizer.vq_ar.dead_below": 0.0}
    assert "fit each other" in attempt("vq_ar", **after, **genie)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"train_tokenizer.dvae.reconstruction": "smoth_l1"},
            "must be one of mse, smooth_l1; did you mean `smooth_l1`?",
        ),
        (
            {"train_tokenizer.dvae.training": {"imges": 1}},
            "`imges` is not a key that a kind can override",
        ),
        ({"train_tokenizer.dvae.training": {"imges": 1}}, "did you mean `images`?"),
    ],
)
def test_a_mistyped_choice_is_answered_with_the_nearest_one(attempt, changes, told):
    refused(attempt, "dvae", told, **changes)
