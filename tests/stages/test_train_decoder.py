"""`train_decoder` and `sample_decoder` in every space, with what CLIP says stored or computed, and what they refuse."""

import copy
import json
import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from darkroom.artifacts.manifest import ArtifactError, file_hashes, manifest_hash, read_manifest, write_manifest
from darkroom.data.catalog import load_catalog
from darkroom.data.catalog_writer import write_catalog
from darkroom.data.draw import drawn
from darkroom.data.embeddings import EmbeddingShards
from darkroom.data.grid import captioned_grid
from darkroom.data.images import ImageSpec
from darkroom.data.reader import ImageShards
from darkroom.errors import DarkroomError
from darkroom.models.clip.load import load_clip, save_clip
from darkroom.models.clip.network import Contrastive
from darkroom.models.clip.settings import EmbedClip, EmbedParams
from darkroom.models.decoder import variations as pictures
from darkroom.models.decoder.data import embedded
from darkroom.models.decoder.opening import open_data
from darkroom.models.decoder.settings import Params, SampleParams
from darkroom.models.evaluators.evaluation import UNetEvaluation
from darkroom.models.evaluators.extractor import Classifier
from darkroom.params.training import Evaluate
from darkroom.stages import decoding, embed_clip, sample_decoder, train_decoder
from darkroom.training.data import Augmentation, Images, mirrored
from darkroom.training.loop import seeded
from data.making import make_latents, make_part
from helpers import add_tokenizer, run, training
from models.clip.clips import SIZE
from models.decoder.small_decoder import UP_MODEL, section
from models.tokenizers.discrete import Patches, write_tokenizer

SPEC = ImageSpec(16, "RGB", "png")
TOLD = {"embeddings": "data/embeddings", "clip": "data/none"}
COMPUTED = {"embeddings": "data/none", "clip": "models/clip"}
UNTOLD = {"embeddings": "data/none", "clip": "data/none"}
NOT_TOLD = {"image_tokens": 0, "image_to_time": False, "image_map": 0, "text_tokens": False}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of 16 x 16 pixels in two parts, a CLIP and its embeddings, a tokenizer and its latents."""
    root = tmp_path_factory.mktemp("clone")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        write_data()
    return root


@pytest.fixture
def clone(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, as the working folder."""
    return enter(whole, tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def whole_trained(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of it in which a first U-Net has been trained."""
    with pytest.MonkeyPatch.context() as patch:
        folder = enter(whole, tmp_path_factory.mktemp("trained"), patch)
        train_decoder.run(params(), "base")
    return folder


@pytest.fixture
def trained(whole_trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of this one, as the working folder."""
    return enter(whole_trained, tmp_path, monkeypatch)


def enter(whole: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a copy of a clone the working folder, with the state of stages in `state`, and return it."""
    shutil.copytree(whole, folder, dirs_exist_ok=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("DVC_ROOT", str(folder))
    add_tokenizer(monkeypatch, "patches", Patches)
    # By which parameters a state is known is tested beside `open_state`.
    monkeypatch.setattr(
        "darkroom.training.stage.open_state", lambda stage, item: nullcontext(folder / "state" / f"{stage}-{item}-0")
    )
    return folder


def write_data() -> None:
    """Write it into the working folder."""
    for number, part in enumerate(("one", "two")):
        make_part(Path("data/shards"), part, 30 * number, 30 * number + 30, spec=SPEC)
    Path("data/catalog").mkdir()
    write_catalog(Path("data/catalog"), ["one", "two"])
    with seeded(0):
        network = Contrastive({**SIZE, "context_length": 12})
    Path("models/clip").mkdir(parents=True)
    metadata = save_clip(Path("models/clip"), network)
    write_manifest(
        Path("models/clip"), "clip", **metadata, long_captions="stop", files=file_hashes(Path("models/clip"))
    )
    embed()
    write_tokenizer(Patches(16))
    encode_all()


def encode_all(shift: int = 0) -> None:
    """Write the latents of both parts, of mirror images where the shards ask for them, and of moved images."""
    for part in ("one", "two"):
        shutil.rmtree(Path("data/latents") / part, ignore_errors=True)
        make_latents(
            Path("data/shards"),
            Path("data/latents"),
            part,
            tokenizer=manifest_hash(Path("models/tokenizer")),
            encode=lambda images: (
                Patches(16).encode(torch.from_numpy(images.copy()))[0].numpy(),
                np.full((len(images), 3, 8, 8), -9, np.float32),
            ),
            shape=(3, 8, 8),
            shift=shift,
        )


def embed(**changes: Any) -> None:
    imported = {
        "images": "img_emb",
        "texts": None,
        "encodings": None,
        "index_width": 4,
        "missing": "stop",
    }
    values = {"threads": 1, "batch": 8, "normalise": True, "encodings": True, "store": ["train", "val", "test"]}
    settings = EmbedClip(**{**values, "imported": imported, **changes})
    for part in ("one", "two"):
        embed_clip.run(EmbedParams(run=run(), parts={part: {"embeddings": "data/none"}}, embed_clip=settings), part)


def mirror_images() -> None:
    """Let the mirror image of each image be as true, and embed the parts anew."""
    for folder in ("data/shards", "data/catalog", "data/embeddings"):
        shutil.rmtree(folder)
    for number, part in enumerate(("one", "two")):
        make_part(Path("data/shards"), part, 30 * number, 30 * number + 30, spec=SPEC, mirror=True)
    Path("data/catalog").mkdir()
    write_catalog(Path("data/catalog"), ["one", "two"])
    embed()


def params(
    name: str = "base",
    weights: str = "data/none",
    tokenizer: bool = False,
    latents: bool = False,
    evaluate: dict[str, Any] | None = None,
    **unet: Any,
) -> Params:
    how = training(images=16, validate_every=16, learning_rate=0.001)
    changes = {"size": 8, "grids": {"steps": 2}, **unet}
    values = section(changes.pop("model", None), changes.pop("diffusion", None), changes.pop("low", None), **changes)
    told = values.model_dump() | {"weights": weights}
    return Params(
        run=run(),
        train_decoder={
            "tokenizer": "models/tokenizer" if tokenizer else "data/none",
            "latents": "data/latents" if latents else "data/none",
            "timesteps": 20,
            "evaluate": evaluate or {},
            "training": how.model_dump(),
            "unets": {name: told},
        },
    )


def up_sampler(**changes: Any) -> Params:
    return params(
        "up",
        **{"size": 16, "low_size": 8, "model": UP_MODEL, "diffusion": {"variance": "fixed_small"}, **UNTOLD, **changes},
    )


def sampling(names: tuple[str, ...], **changes: Any) -> SampleParams:
    how = {
        "solver": "ddim",
        "steps": 2,
        "eta": 0.0,
        "guidance": 1.5,
        "threshold": "clip",
        "percentile": 0.95,
        "embedding_noise": 0.0,
        "low_noise": 0.1,
    }
    pictures = {"variations": 1, "interpolations": 1, "inpainted": 1, "resamples": 2}
    values = {
        "seed": 0,
        "threads": 1,
        "split": "test",
        "images": 6,
        "batch": 4,
        "weights": "ema",
        "common": how,
        "unets": {},
        "pictures": pictures,
        "shard_size": 4,
    }
    return SampleParams(
        run=run(), train_decoder={"unets": dict.fromkeys(names)}, sample_decoder=copy.deepcopy({**values, **changes})
    )


def weights(name: str = "base") -> bytes:
    return (Path("models/decoder") / name / "model.safetensors").read_bytes()


def test_from_shards_to_samples_with_an_up_sampler(trained: Path) -> None:
    train_decoder.run(up_sampler(), "up")
    sample_decoder.run(sampling(("base", "up")))
    made = ImageShards.open_folder(Path("samples/decoder"))
    real = ImageShards.open_parts(["one", "two"], "test")
    for found, known in ((made.keys, real.keys), (made.labels, real.labels), (made.captions, real.captions)):
        assert found == [known[row] for row in drawn(len(real), 6)]
    assert made.image_shape == (3, 16, 16)
    manifest = read_manifest(Path("samples/decoder"), "samples")
    assert manifest["clip"] == load_clip().fingerprint and manifest["condition"] == "image"
    assert set(manifest["files"]) == {"grid.png", "variations.png", "interpolations.png", "inpainted.png"}
    assert (Path("curves/decoder/base/metrics.json")).is_file() or any(Path("curves/decoder/base").iterdir())


def write_extractor() -> None:
    folder, classes = Path("models/extractor"), load_catalog().classes
    folder.mkdir(parents=True)
    with seeded(0):
        Classifier(3, len(classes), [4, 4], 3, 0.0).save_pretrained(folder)
    write_manifest(folder, "extractor", image_shape=[3, 16, 16], classes=list(classes), files=file_hashes(folder))


def curve(unet: str, name: str) -> dict[int, float]:
    """Return the points of a curve, by images seen."""
    (path,) = (Path("curves/decoder") / unet).rglob(f"eval/{name}.tsv")
    rows = [line.split("\t") for line in path.read_text().splitlines()[1:]]
    return {int(row[0]): float(row[-1]) for row in rows}


def test_scores_while_training_are_curves_of_each_u_net_and_change_no_weight(clone: Path) -> None:
    """Of pixels, of an up-sampler, and of latents, whose images are of the whole size."""
    write_extractor()
    asked = {"every": 8, "images": 5, "batch": 2, "extractor": "models/extractor"}
    for made, name in ((params, "base"), (up_sampler, "up"), (partial(params, tokenizer=True, latents=True), "base")):
        train_decoder.run(made(), name)
        plain = weights(name)
        shutil.rmtree("state")
        train_decoder.run(made(evaluate=asked), name)
        assert weights(name) == plain
        for score in ("fd", "fd_debiased", "kid", "psnr"):
            assert list(curve(name, score)) == [8, 16], score
        assert 3 < curve(name, "psnr")[16] < 40
        shutil.rmtree("state")


def test_scores_while_training_need_images_of_the_validation_split(clone: Path) -> None:
    write_extractor()
    device, asked = torch.device("cpu"), Evaluate(every=8, extractor="models/extractor")
    with pytest.raises(DarkroomError, match=r"has only 3 images.*ingest.splits.val"):
        UNetEvaluation.open(asked, load_catalog(), 3, device)
    assert UNetEvaluation.open(Evaluate(), load_catalog(), 3, device) is None
    with pytest.raises(ValueError, match="extractor must be set"):
        Evaluate(every=8)


def test_scores_while_training_know_good_images_from_bad_ones_for_any_number_of_processes(clone: Path) -> None:
    write_extractor()
    asked = Evaluate(every=8, images=20, batch=3, extractor="models/extractor")
    evaluation = UNetEvaluation.open(asked, load_catalog(), 24, torch.device("cpu"))
    images = torch.from_numpy(ImageShards.open_parts(["one", "two"], "train").__getitems__(range(24)))[..., ::2, ::2]

    def real(rows: Sequence[int]) -> torch.Tensor:
        return images[list(rows)]

    def scores(made: Any, count: int = 1) -> dict[str, float]:
        shares: list[list[torch.Tensor]] = []  # of each process, what it gathers, in order

        def keep(values: torch.Tensor) -> torch.Tensor:
            shares[-1].append(values)
            return torch.rand(20, 3) if len(values.shape) > 1 or not len(values) else values

        for rank in range(count):
            shares.append([])
            evaluation.scores(made, 24, real, 24, rank, count, keep)
        both = iter(torch.cat([each for each in turn if len(each)]) for turn in zip(*shares, strict=True))
        return evaluation.scores(made, 24, real, 24, 0, 1, lambda values: next(both))

    same = scores(lambda rows: (real(rows), real(rows)))
    worse = scores(lambda rows: (255 - real(rows), real(rows)))
    assert same["fd"] < 0.5 * worse["fd"] and same["psnr"] > 60 > 20 > worse["psnr"]
    assert scores(lambda rows: (real(rows), real(rows)), count=3) == same


def test_further_pictures_are_of_the_images_whose_embeddings_are_varied(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    four = {"variations": 4, "interpolations": 2, "inpainted": 4, "resamples": 1}
    given: dict[str, Any] = {}

    def watched(picture: str, make: Any, /, *told: Any, **more: Any) -> Any:
        given[picture] = told
        return make(*told, **more)

    for picture in ("variations", "interpolations", "inpainted"):
        monkeypatch.setattr(pictures, picture, partial(watched, picture, getattr(pictures, picture)))
    sample_decoder.run(sampling(("base",), pictures=four))
    shards = ImageShards.open_parts(["one", "two"], "test")
    assert len(given) == 3
    for picture, (_, real, image, *_) in given.items():
        rows = drawn(len(shards), 6)[: len(real)]
        assert rows != list(range(len(rows))) and np.array_equal(real, shards.__getitems__(rows)), picture
        stored = EmbeddingShards.open_parts(["one", "two"], "test").__getitems__(rows)["image"]
        cosines = np.corrcoef(stored.astype(np.float64), image.numpy().astype(np.float64))[: len(rows), len(rows) :]
        assert (cosines.argmax(axis=1) == np.arange(len(rows))).all(), picture


def test_the_grid_is_of_originals_beside_samples_with_their_captions(trained: Path) -> None:
    sample_decoder.run(sampling(("base",)))
    made = ImageShards.open_folder(Path("samples/decoder"))
    real = ImageShards.open_parts(["one", "two"], "test")
    rows = drawn(len(real), 6)
    pairs = [np.concatenate([real.__getitems__([row]), made.__getitems__([at])]) for at, row in enumerate(rows)]
    words = [made.captions[row] or made.keys[row] for row in range(6)]
    expected = captioned_grid(pairs, words, 4)
    with Image.open("samples/decoder/grid.png") as grid:
        assert np.array_equal(np.asarray(grid.convert("RGB")), np.asarray(expected))


def test_a_first_u_net_may_be_told_nothing(clone: Path) -> None:
    train_decoder.run(params(model=NOT_TOLD, **UNTOLD), "base")
    sample_decoder.run(sampling(("base",)))
    manifest = read_manifest(Path("samples/decoder"), "samples")
    assert (manifest["condition"], manifest["clip"], manifest["images"]) == ("none", None, 6)
    made = ImageShards.open_folder(Path("samples/decoder")).__getitems__(range(6))
    assert len(np.unique(made.reshape(6, -1), axis=0)) == 6  # each from noise of its own


def test_computed_embeddings_train_nearly_the_same_as_stored_ones(clone: Path) -> None:
    """Stored ones are float16, and the scale of computed ones is sqrt(D) to all digits."""
    found = {}
    for name, told in (("stored", TOLD), ("computed", COMPUTED)):
        train_decoder.run(params(name, **told), name)
        metadata = read_manifest(Path("models/decoder") / name, "decoder")
        found[name] = metadata["best_validation"]["loss"]
        assert metadata["clip"] == load_clip().fingerprint
    assert found["stored"] == pytest.approx(found["computed"], rel=1e-2)
    assert weights("stored") != weights("computed")


def test_clip_embeds_the_images_as_they_are_changed(clone: Path) -> None:
    catalog, device = load_catalog(), torch.device("cpu")
    how = {"mirror": 0.5, "scale": [0.4, 0.8]}
    section = params(**COMPUTED, augment=how).train_decoder
    section = section.model_copy(update={"training": training(seed=11)})
    opened = open_data(section, "base", catalog, device)
    positions = np.arange(100, 108)
    data = opened.rows["train"].__getitems__(list(range(8)), positions)
    shards = ImageShards.open_parts(["one", "two"], "train")
    changed = Images(shards, 11, Augmentation(0.5, (0.4, 0.8))).__getitems__(list(range(8)), positions)["images"]
    plain = shards.__getitems__(list(range(8)))
    assert (data["images"] == changed).all() and (changed != plain).any(axis=(1, 2, 3)).all()
    batch = {name: torch.from_numpy(np.asarray(value)) for name, value in data.items()}
    told = opened.conditioner(batch)[0]
    expected = opened.conditioner.scaler(embedded(load_clip(), torch.from_numpy(changed)))
    torch.testing.assert_close(told, expected)
    assert not torch.allclose(told, opened.conditioner({**batch, "images": torch.from_numpy(plain)})[0], atol=1e-3)
    assert (opened.rows["val"].__getitems__([0])["images"] == opened.rows["val"].rows.shards.__getitems__([0])).all()


@pytest.mark.parametrize("told", [TOLD, COMPUTED, UNTOLD])
def test_images_are_mirrored_where_their_source_says_so_and_no_stored_embedding_forbids_it(
    clone: Path, told: dict[str, str]
) -> None:
    """By the training's seed."""
    mirror_images()
    section = params(model=NOT_TOLD if told is UNTOLD else None, **told).train_decoder
    section = section.model_copy(update={"training": training(seed=11)})
    rows = open_data(section, "base", load_catalog(), torch.device("cpu")).rows["train"]
    shards, asked, positions = ImageShards.open_parts(["one", "two"], "train"), list(range(20)), np.arange(20)
    turned = mirrored(11, np.full(len(shards), told is not TOLD), asked, positions)
    plain = shards.__getitems__(asked)
    assert turned.any() == (told is not TOLD)
    seen = rows.__getitems__(asked, positions)["images"]
    assert (seen == np.where(turned[:, None, None, None], plain[..., ::-1], plain)).all()


@pytest.mark.parametrize("shift", [0, 1])
def test_stored_latents_are_mirrored_and_moved_but_not_for_stored_embeddings(clone: Path, shift: int) -> None:
    mirror_images()
    encode_all(shift)
    asked, positions = list(range(20)), np.arange(20)
    for told in (UNTOLD, TOLD):
        settings = params(model=NOT_TOLD if told is UNTOLD else None, tokenizer=True, latents=True, **told)
        rows = open_data(settings.train_decoder, "base", load_catalog(), torch.device("cpu")).rows["train"]
        plain, seen = rows.__getitems__(asked)["mean"], rows.__getitems__(asked, positions)["mean"]
        turned = mirrored(0, np.full(len(rows), told is UNTOLD), asked, positions)
        changed = (seen != plain).numpy().any(axis=(1, 2, 3))
        assert changed.any() == (told is UNTOLD) and changed[turned].all() and (shift or (changed == turned).all())


def test_images_are_not_changed_where_latents_are_stored() -> None:
    with pytest.raises(ValueError, match=r"unets\.base\.augment\.mirror changes the images, but `latents`"):
        params(model=NOT_TOLD, tokenizer=True, latents=True, augment={"mirror": 0.5}, **UNTOLD)


def test_a_training_on_random_crops_continues_and_learns_from_them(clone: Path) -> None:
    """The weights differ from those of whole images, and are the same bytes in another process of the stage."""
    found = []
    for augment in ({}, {"scale": [0.3, 0.6]}, {"scale": [0.3, 0.6]}):
        shutil.rmtree("models/decoder", ignore_errors=True)
        shutil.rmtree("state", ignore_errors=True)
        train_decoder.run(up_sampler(augment=augment), "up")
        found.append(weights("up"))
    assert found[0] != found[1] == found[2]


def test_splits_that_are_not_stored_are_computed_or_refused(clone: Path) -> None:
    embed(store=["test"])
    with pytest.raises(ArtifactError, match="has no embeddings of the split train"):
        train_decoder.run(params(), "base")
    train_decoder.run(params(**COMPUTED), "base")
    sample_decoder.run(sampling(("base",)))


@pytest.mark.parametrize("latents", [True, False])
def test_a_decoder_of_latents(clone: Path, latents: bool) -> None:
    settings = params(tokenizer=True, latents=latents)
    train_decoder.run(settings, "base")
    sample_decoder.run(sampling(("base",)))
    assert ImageShards.open_folder(Path("samples/decoder")).image_shape == (3, 16, 16)
    metadata = read_manifest(Path("models/decoder/base"), "decoder")
    assert metadata["tokenizer"] == manifest_hash(Path("models/tokenizer"))
    shutil.rmtree("models/tokenizer")
    write_tokenizer(Patches(16, size=5))
    with pytest.raises(ArtifactError, match="with another tokenizer than models/tokenizer"):
        sample_decoder.run(sampling(("base",)))
    if latents:
        with pytest.raises(DarkroomError, match="data/latents was made with another tokenizer"):
            train_decoder.run(settings, "base")


def test_latents_of_other_images_are_refused(clone: Path) -> None:
    shutil.rmtree("data/shards")
    for number, part in enumerate(("one", "two")):
        make_part(Path("data/shards"), part, 30 * number + 1, 30 * number + 31, spec=SPEC)
    shutil.rmtree("data/catalog")
    Path("data/catalog").mkdir()
    write_catalog(Path("data/catalog"), ["one", "two"])
    with pytest.raises(DarkroomError, match="of other images than data/shards"):
        train_decoder.run(params(tokenizer=True, latents=True), "base")


def test_clip_cannot_embed_images_of_which_latents_alone_are_read() -> None:
    with pytest.raises(ValueError, match="with stored latents none are read"):
        params(tokenizer=True, latents=True, **COMPUTED)


def test_a_frozen_one_without_weights_is_left_out_and_real_images_are_enlarged(clone: Path) -> None:
    train_decoder.run(params(frozen=True), "base")
    assert not read_manifest(Path("models/decoder/base"), "decoder")["trained"]
    train_decoder.run(up_sampler(), "up")
    sample_decoder.run(sampling(("base", "up")))
    assert read_manifest(Path("samples/decoder"), "samples")["condition"] == "none"


def test_weights_of_another_run_keep_what_they_were_trained_with(trained: Path) -> None:
    shutil.move("models/decoder/base", "earlier")
    manifest = json.loads(Path("earlier/manifest.json").read_text())
    manifest["embedding_mean"][0] += 0.25
    rewritten = {name: value for name, value in manifest.items() if name not in ("kind", "format_version")}
    write_manifest(Path("earlier"), "decoder", **rewritten)
    train_decoder.run(params(weights="earlier", frozen=True), "base")
    kept = read_manifest(Path("models/decoder/base"), "decoder")
    assert kept["embedding_mean"] == manifest["embedding_mean"] and kept["embedding_std"] == manifest["embedding_std"]
    assert weights() == Path("earlier/model.safetensors").read_bytes()
    train_decoder.run(params(weights="earlier"), "base")
    assert read_manifest(Path("models/decoder/base"), "decoder")["embedding_mean"] == manifest["embedding_mean"]
    with pytest.raises(DarkroomError, match="were trained with another prediction"):
        train_decoder.run(params(weights="earlier", frozen=True, diffusion={"schedule": "linear"}), "base")
    write_manifest(Path("earlier"), "decoder", **{**rewritten, "clip": "0" * 64})
    for frozen in (False, True):
        with pytest.raises(DarkroomError, match="were trained with another clip"):
            train_decoder.run(params(weights="earlier", frozen=frozen), "base")
    write_manifest(Path("earlier"), "decoder", **{**rewritten, "tokenizer": "0" * 64})
    with pytest.raises(DarkroomError, match="were trained with another tokenizer"):  # of latents, and these are pixels
        train_decoder.run(params(weights="earlier"), "base")


def test_samples_of_another_clip_are_refused(trained: Path) -> None:
    with seeded(1):
        network = Contrastive({**SIZE, "context_length": 12})
    metadata = save_clip(Path("models/clip"), network)
    files = file_hashes(Path("models/clip"))
    write_manifest(Path("models/clip"), "clip", **metadata, long_captions="stop", files=files)
    embed()
    with pytest.raises(ArtifactError, match="trained with another CLIP than data/embeddings"):
        sample_decoder.run(sampling(("base",)))


def test_embeddings_that_are_normalised_otherwise_are_refused(trained: Path) -> None:
    embed(normalise=False)
    with pytest.raises(ArtifactError, match="trained on embeddings of length 1, but those of data/embeddings are of"):
        sample_decoder.run(sampling(("base",)))


def test_embeddings_of_other_images_are_refused_with_their_key(clone: Path) -> None:
    shutil.rmtree("data/shards/two")
    make_part(Path("data/shards"), "two", 30, 59, spec=SPEC)
    shutil.rmtree("data/catalog")
    Path("data/catalog").mkdir()
    write_catalog(Path("data/catalog"), ["one", "two"])
    with pytest.raises(DarkroomError, match="noise-0059"):
        train_decoder.run(params(), "base")


def test_text_tokens_need_encodings(clone: Path) -> None:
    embed(encodings=False)
    with pytest.raises(DarkroomError, match=r"embed_clip\.encodings"):
        train_decoder.run(params(), "base")
    train_decoder.run(params(model={"text_tokens": False}), "base")


def test_samples_say_that_they_were_told_encodings_alone(clone: Path) -> None:
    train_decoder.run(params(model={"image_to_time": False, "image_tokens": 0, "image_map": 0}), "base")
    sample_decoder.run(sampling(("base",)))
    assert read_manifest(Path("samples/decoder"), "samples")["condition"] == "encoding"


def test_the_same_bytes_twice(trained: Path) -> None:
    first, metadata = weights(), json.loads(Path("models/decoder/base/manifest.json").read_text())
    shutil.rmtree("models/decoder")
    shutil.rmtree("state")
    train_decoder.run(params(), "base")
    assert weights() == first
    assert json.loads(Path("models/decoder/base/manifest.json").read_text()) == metadata


def test_only_the_images_of_the_grid_are_kept() -> None:
    """As many samples as one likes fit into memory: each is written as it comes."""
    count = 100
    images = SimpleNamespace(keys=[f"{row}" for row in range(count)], labels=[None] * count, captions=[None] * count)
    rows, kept = list(range(count)), {}
    batches = torch.arange(count, dtype=torch.uint8).view(count, 1, 1, 1).expand(count, 3, 2, 2).split(7)
    found = list(decoding.samples(batches, images, rows, kept))
    assert [sample.key for sample in found] == images.keys and len(kept) == 32
    assert all((made == row).all() for row, made in kept.items()) and {0, 99} < kept.keys()
