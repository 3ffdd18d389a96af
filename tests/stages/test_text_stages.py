"""The stages `train_prior` and `sample_text`, and `darkroom sample`: from captions to images, and what is refused."""

import copy
import json
import shutil
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional

from darkroom.artifacts.manifest import ArtifactError, read_manifest
from darkroom.data.draw import drawn
from darkroom.data.reader import ImageShards
from darkroom.errors import DarkroomError
from darkroom.models.clip.load import load_clip
from darkroom.models.prior.network import Prior
from darkroom.models.prior.settings import Params as TrainParams
from darkroom.models.prior.settings import SampleParams
from darkroom.params.section import validate
from darkroom.stages import sample_text, train_prior
from darkroom.tools.sample.command import PLACE, sample
from stages.text_models import SECTIONS, embed, hashes, write_clip, write_data, write_decoder, write_params

PARTS = {"first": True, "bare": False, "second": True}


def train(**changes):
    section = {**SECTIONS["train_prior"], **changes}
    train_prior.run(validate(TrainParams, {"run": SECTIONS["run"], "train_prior": section}))


def make(**changes):
    names = ("run", "train_decoder", "sample_decoder", "sample_text")
    values = {name: SECTIONS[name] for name in names}
    sample_text.run(validate(SampleParams, {**values, "sample_text": {**values["sample_text"], **changes}}))
    return ImageShards.open_folder(Path("samples/text"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A clone in which all that `sample_text` reads was made."""
    root = tmp_path_factory.mktemp("clone")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setattr("darkroom.training.stage.open_state", lambda stage, item: nullcontext(root / "state" / "prior"))
        write_params()
        write_data(PARTS)
        write_clip()
        embed(PARTS)
        train()
        write_decoder(load_clip().fingerprint)
    return root


@pytest.fixture
def clone(whole, tmp_path, monkeypatch):
    """A copy of it, as the working folder."""
    folder = tmp_path / "clone"
    shutil.copytree(whole, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(
        "darkroom.training.stage.open_state", lambda stage, item: nullcontext(tmp_path / "state" / "prior")
    )
    return folder


# ----------------------------------------------------------------------------------------------------------------------
# train_prior


def test_the_manifest_says_of_which_clip_and_how_near_it_comes(clone):
    metadata = read_manifest(Path("models/prior"), "prior")
    assert metadata["clip"] == load_clip().fingerprint and metadata["normalised"] is True
    assert (metadata["embed_dim"], metadata["text_shape"], metadata["images_seen"]) == (8, [8, 64], 16)
    assert metadata["objective"] == "gaussian"
    says = {"schedule": "cosine", "timesteps": 20, "target": "x0"}
    assert metadata["prediction"] == says | {"variance": "fixed_small", "variance_range": "linear"}
    scores = metadata["scores"]
    assert scores["split"] == "test" and scores["images"] == 8
    assert (
        all(-1 <= scores[name] <= 1 for name in ("cosine", "cosine_other", "cosine_text")) and scores["cosine_se"] > 0
    )
    assert sorted(path.stem for path in Path("curves/prior").rglob("cosine*.tsv"))
    assert not torch.equal(*(Prior.open(each).network.words.weight for each in ("ema", "raw")))


def test_the_same_training_writes_the_same_bytes(clone):
    before = hashes("models/prior")
    shutil.rmtree(clone.parent / "state", ignore_errors=True)
    train()
    assert hashes("models/prior") == before


def test_embeddings_of_two_clips_are_refused(clone):
    write_clip(seed=1)
    embed({"second": True})
    with pytest.raises(ArtifactError, match="`first` and `second` have different CLIPs"):
        train()


def test_without_captions_nothing_is_trained_and_nothing_made(clone):
    shutil.rmtree("data")
    write_data({"bare": False})
    embed({"bare": False})
    train()
    manifest = read_manifest(Path("models/prior"), "prior")
    assert (manifest["trained"], manifest["reason"]) == (False, "no image has a caption")
    assert_nothing_is_made()


def assert_nothing_is_made() -> None:
    names = ("run", "train_decoder", "sample_decoder", "sample_text")
    sample_text.run(validate(SampleParams, {name: SECTIONS[name] for name in names}))
    assert read_manifest(Path("samples/text"), "samples")["images"] == 0


def test_weights_of_the_prior_of_another_clip_are_refused(clone):
    shutil.move("models/prior", "earlier")
    begun = copy.deepcopy(SECTIONS["train_prior"]["training"])
    begun["init"]["folder"] = "earlier"
    train(training=begun)
    write_clip(seed=1)
    embed(PARTS)
    with pytest.raises(DarkroomError, match=r"`train_prior\.training\.init\.folder` were trained with another clip"):
        train(training=begun)


def test_guidance_without_dropped_texts_is_refused():
    diffusion = {**SECTIONS["train_prior"]["diffusion"], "text_dropout": 0.0}
    with pytest.raises(DarkroomError, match=r"evaluate\.guidance is 1\.5, but diffusion\.text_dropout is 0"):
        train(diffusion=diffusion)


# ----------------------------------------------------------------------------------------------------------------------
# sample_text


def test_images_of_captions_stand_beside_their_originals(clone):
    found, test = make(), ImageShards.open_parts(["first", "second"], "test")
    all_captioned = [row for row, caption in enumerate(test.captions) if caption is not None]
    captioned = [all_captioned[place] for place in drawn(len(all_captioned), 5)]
    assert found.keys == test.keys_of(captioned)
    assert found.captions == [test.captions[row] for row in captioned]
    assert found.labels == ["noise"] * 5
    metadata = read_manifest(Path("samples/text"), "samples")
    assert (metadata["images"], metadata["condition"], metadata["split"]) == (5, "text", "test")
    assert metadata["clip"] == load_clip().fingerprint and metadata["prior"] == hashes("models/prior")
    assert [shard["images"] for shard in metadata["shards"]] == [3, 2]
    with Image.open("samples/text/grid.png") as grid:
        assert grid.width > 2 * 2 * 8


def test_without_stored_embeddings_to_learn_from_there_is_no_prior(clone):
    embed(PARTS, store=["test"])
    train()
    manifest = read_manifest(Path("models/prior"), "prior")
    assert not manifest["trained"] and "`embed_clip.store` leaves out the embeddings of train and val" in str(manifest)
    assert_nothing_is_made()


def test_without_a_unet_that_is_told_of_texts_there_are_no_images_of_them(clone):
    """Nor an error, which would leave the table and the page unwritten."""
    write_decoder(None)
    assert_nothing_is_made()
    with pytest.raises(ArtifactError, match="no U-Net in models/decoder is conditioned on"):
        sample(["a ring"], [], 1, None, "out.png")


def test_an_image_does_not_depend_on_how_many_are_made(clone):
    few = make(images=2).__getitems__([0, 1])
    every = make(images=None)
    assert len(every) > 5 and np.array_equal(every.__getitems__([0, 1]), few)
    assert not np.array_equal(make(images=2, seed=4).__getitems__([0, 1]), few)


def test_models_of_other_clips_are_refused(clone):
    write_decoder("d" * 64)
    with pytest.raises(ArtifactError, match=r"models/decoder was trained with another CLIP than data/embedd"):
        make()
    write_decoder(load_clip().fingerprint, normalised=False)
    with pytest.raises(ArtifactError, match="those of models/prior are of"):
        make()
    write_decoder(load_clip().fingerprint)
    write_clip(seed=1)
    embed(PARTS)
    with pytest.raises(ArtifactError, match=r"models/prior was trained with another CLIP .*dvc repro train_prior"):
        make()


def test_a_decoder_that_is_told_no_text_is_told_the_embedding(clone):
    write_decoder(load_clip().fingerprint, text=False)
    assert len(make()) == 5


# ----------------------------------------------------------------------------------------------------------------------
# darkroom sample


def test_a_grid_of_texts_and_of_variations(clone, capsys):
    Image.new("RGBA", (30, 20), (200, 0, 0, 128)).save("mine.png")
    told = sample(["a red circle", "a ring"], ["mine.png"], 3, 7, "pictures/out.png")
    assert told == "3 images of each text and file: pictures/out.png"
    with Image.open("pictures/out.png") as grid:
        assert grid.width > 4 * 96 and grid.height > 3 * 96  # of a file, it and three
    assert "note: no" not in capsys.readouterr().out


def test_a_text_becomes_the_same_images_in_any_company(clone):
    sample(["a red circle"], [], 2, 7, "one.png")
    sample(["a red circle", "a ring"], [], 2, 7, "two.png")
    sample(["a red circle"], [], 2, 8, "other.png")
    one, two, other = (np.asarray(Image.open(name)) for name in ("one.png", "two.png", "other.png"))
    assert np.array_equal(one[:98], two[:98]) and not np.array_equal(one[:98], other[:98])


def test_the_grid_has_a_name_of_its_own(clone):
    told = sample(["A red circle!"], [], 1, None, None)
    assert told == f"1 image of each text: {PLACE}/a-red-circle-3.png" and (PLACE / "a-red-circle-3.png").is_file()


def test_variations_need_no_prior(clone):
    shutil.rmtree("models/prior")
    Image.new("L", (8, 8), 9).save("mine.png")
    sample([], ["mine.png"], 2, None, "out.png")
    with pytest.raises(DarkroomError, match=r"models/prior is missing: run `dvc repro train_prior`"):
        sample(["a ring"], [], 2, None, "out.png")


def test_an_image_is_filled_in_where_the_mask_is_white(clone):
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save("mine.png")
    mask = np.zeros((8, 8), dtype=np.uint8)
    mask[2:6, 3:8] = 255
    Image.fromarray(mask).save("mask.png")
    told = sample([], ["mine.png"], 2, 7, "out.png", "mask.png")
    assert told == "2 images of each file: out.png"
    with Image.open("out.png") as grid:
        side = (grid.width - 4) // 3  # one image: its pixels are squares
        scale = side // 8
        cells = np.asarray(grid.convert("RGB"))[4 : 4 + 8 * scale, 4 : 4 + 24 * scale].reshape(8, scale, 24, scale, 3)
    shown = cells[:, scale // 2, :, scale // 2].reshape(8, 3, 8, 3).transpose(1, 0, 2, 3)
    assert (shown[0] == np.where(mask[:, :, None] > 0, 128, pixels)).all()
    for made in shown[1:]:
        assert (made[mask == 0] == pixels[mask == 0]).all() and (made[mask > 0] != 128).any()
    assert (shown[1] != shown[2]).any()
    with pytest.raises(DarkroomError, match="name the image with --embedding-of"):
        sample(["a ring"], [], 1, 7, "out.png", "mask.png")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (([], [], 4, None, None), "no input: give --text"),
        ((["a"], [], 1, None, "samples/text/mine.png"), r"overlaps samples/text, which the stage sample_text writes"),
        ((["a"], [], 1, None, "mine.jpg"), "ends in .png"),
        (([], ["none.png"], 1, None, "out.png"), "cannot read none.png: No such file"),
        (([], ["params.yaml"], 1, None, "out.png"), "cannot read params.yaml as an image"),
        ((["a red circle beside a blue square and two rings"], [], 1, None, "out.png"), "longer than CLIP's context"),
    ],
)
def test_what_cannot_be_made_is_told(clone, asked, message):
    with pytest.raises(DarkroomError, match=message):
        sample(*asked)
    assert not Path("out.png").exists()


def test_texts_alone_give_an_up_sampler_nothing_to_enlarge(clone):
    write_decoder(load_clip().fingerprint, low_size=4)
    with pytest.raises(ArtifactError, match="is an up-sampler"):
        sample(["a ring"], [], 1, None, "out.png")
    Image.new("RGB", (8, 8)).save("mine.png")
    sample([], ["mine.png"], 1, None, "out.png")
    assert len(make()) == 5  # of the real images at that size


def test_the_help_loads_no_torch():
    import subprocess
    import sys

    code = "import sys; from darkroom.cli import main\ntry: main(['sample', '--help'])\nexcept SystemExit: pass\n"
    code += "assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--embedding-of" in done.stdout


def test_embeddings_of_texts_come_as_clip_stores_them(clone):
    """The sampled embedding has the length that stored ones have, in which the decoder was trained."""
    from darkroom.models.prior.network import sample_prior
    from darkroom.models.prior.settings import PriorSampling
    from stages.text_models import PRIOR

    text, words = load_clip().texts(["a ring", "a red circle"])
    how = PriorSampling(**PRIOR)
    prior = Prior.open("ema")
    found = sample_prior(prior, text, words, how, 0, [0, 1])
    again = sample_prior(prior, functional.normalize(text, dim=1), words, how, 0, [0, 1])
    assert torch.allclose(found.norm(dim=1), torch.ones(2), atol=1e-5) and torch.allclose(found, again, atol=1e-5)
    assert json.loads(Path("models/prior/config.json").read_text())["embed_dim"] == 8
