"""Published DiT weights: what is refused, what fits, and that they train on and sample."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from darkroom.artifacts.manifest import sha256_file
from darkroom.data.reader import ImageShards
from darkroom.errors import DarkroomError
from darkroom.models.generators.dit.checkpoints import read_published
from darkroom.models.generators.dit.network import DiT
from darkroom.models.generators.dit.published import (
    ours_from_diffusers,
    ours_from_published,
    to_diffusers,
    to_published,
)
from darkroom.models.generators.dit.settings import DiTDiffusion
from darkroom.models.generators.sampler import KeptBatches
from darkroom.params.section import validate
from darkroom.params.training import Init
from darkroom.training.initial import initialise
from models.generators.small_published import (
    DDIM,
    FIXED,
    MODEL,
    WIDTH,
    Payload,
    arguments,
    reference,
    sampled,
    shorten,
    small,
    trained,
    write_clone,
    write_diffusers,
    write_pt,
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    return tmp_path


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


def begun(model: DiT, source: Path | str, *skip: str) -> dict[str, torch.Tensor]:
    """Return the weights of a model that is initialised from a file or folder."""
    initialise({"dit": model}, Init(folder=str(source), skip=list(skip)))
    return model.state_dict()


# ----------------------------------------------------------------------------------------------------------------------
# Names


def test_the_names_and_shapes_are_those_of_the_paper_s_code():
    """As in facebookresearch/DiT, whose `load_state_dict` takes them."""
    width, block = 16, "blocks.1."
    found = {name: tuple(value.shape) for name, value in to_published(small(3).state_dict()).items()}
    expected = {
        "pos_embed": (1, 4, width),
        "x_embedder.proj.weight": (width, 2, 2, 2),
        "x_embedder.proj.bias": (width,),
        "t_embedder.mlp.0.weight": (width, 256),
        "t_embedder.mlp.2.bias": (width,),
        "y_embedder.embedding_table.weight": (4, width),
        f"{block}attn.qkv.weight": (3 * width, width),
        f"{block}attn.proj.bias": (width,),
        f"{block}mlp.fc1.weight": (4 * width, width),
        f"{block}mlp.fc2.weight": (width, 4 * width),
        f"{block}adaLN_modulation.1.weight": (6 * width, width),
        "final_layer.linear.weight": (2 * 2 * 4, width),
        "final_layer.adaLN_modulation.1.bias": (2 * width,),
    }
    assert found.items() >= expected.items()
    assert len(found) == 1 + 2 * (1 + 2 + 2) + 1 + 2 * 2 * 5


def test_a_file_with_the_paper_s_names_is_the_paper_s_network(here):
    named = to_published(small(3).state_dict())
    torch.save(named, here / "some.pt")
    model = small(3).apply(_zero)
    begun(model, here / "some.pt")
    x, t, labels = torch.randn(4, 2, 4, 4), torch.tensor([0, 7, 500, 999]), torch.tensor([0, 1, 2, 3])
    with torch.no_grad():
        found = model(x, t, labels).double()
    assert torch.allclose(found, reference(named, x, t, labels), rtol=1e-4, atol=1e-4 * float(found.abs().max()))


@pytest.mark.parametrize(("there", "back"), [(to_published, ours_from_published), (to_diffusers, ours_from_diffusers)])
def test_names_there_and_back_are_the_same_bits(there, back):
    ours = small(3).state_dict()
    positions = {"positions": ours["positions"]} if back is ours_from_diffusers else {}
    assert same(back(there(ours)) | positions, ours)
    assert same(there(back(there(ours))), there(ours))


# ----------------------------------------------------------------------------------------------------------------------
# Files


@pytest.mark.parametrize(
    "form", ["bare", "checkpoint", "parallel", "safetensors", "folder", "diffusers", "pipeline", "bin"]
)
def test_every_published_form_gives_the_same_weights(here, form):
    """Of a checkpoint the averaged weights are taken, and not those beside them."""
    model, named = small(3), to_published(small(3).state_dict())
    source = here / "weights.pt"
    if form == "bare":
        write_pt(source, model)
    elif form == "checkpoint":
        write_pt(source, model, args=arguments("DiT-XL/2"))
        model = small(3, heads=16)
    elif form == "parallel":
        torch.save({f"module.{name}": value for name, value in named.items()}, source)
    elif form == "safetensors":
        source = here / "weights.safetensors"
        save_file(named, source)
    elif form == "folder":
        source = write_pt(here / "weights.pt", model).parent
    else:
        source = here / "some"
        folder = write_diffusers(source / "transformer" if form == "pipeline" else source, model)
        if form == "bin":
            weights = folder / "diffusion_pytorch_model.safetensors"
            torch.save(load_file(weights), weights.with_suffix(".bin"))
            weights.unlink()
    heads = model.config.heads
    assert same(begun(small(3, heads=heads, width=16).apply(_zero), source), model.state_dict())


def _zero(module: torch.nn.Module) -> None:
    for parameter in module.parameters(recurse=False):
        torch.nn.init.zeros_(parameter)


def test_diffusers_is_told_no_table_and_gets_the_published_one(here):
    """Its halves are columns and rows; our files without one are older than that order."""
    found = begun(small(3), write_diffusers(here / "some", small(3)))
    assert torch.equal(found["positions"], small(3).positions)


def test_half_precision_becomes_float32(here):
    named = {name: value.half() for name, value in to_published(small(3).state_dict()).items()}
    torch.save(named, here / "half.pt")
    found = begun(small(3), here / "half.pt")
    assert {value.dtype for value in found.values()} == {torch.float32}
    assert torch.equal(found["labels.weight"], named["y_embedder.embedding_table.weight"].float())


def test_a_url_is_downloaded_once_by_its_hash(here):
    path = write_pt(here / "there.pt", small(3))
    url, sha256 = path.as_uri(), sha256_file(path)
    model = small(3).apply(_zero)
    initialise({"dit": model}, Init(url=url, sha256=sha256))
    path.unlink()
    initialise({"dit": model}, Init(url=url, sha256=sha256))
    assert same(model.state_dict(), small(3).state_dict())


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_that_would_run_code_is_refused_before_it_runs(here, zipped):
    """Unrestricted, the file would be made: the payload works."""
    path, proof = here / "evil.pt", here / "proof"
    torch.save(
        {**to_published(small(3).state_dict()), "more": Payload(proof)}, path, _use_new_zipfile_serialization=zipped
    )
    with pytest.raises(
        DarkroomError, match=r"evil\.pt is not a plain file.*it requests posix.system.*rejected before any"
    ):
        begun(small(3), path)
    assert not proof.exists()
    torch.load(path, weights_only=False)
    assert proof.exists()


def test_a_namespace_with_a_payload_inside_is_refused(here):
    proof = here / "proof"
    given = arguments("DiT-XL/2")
    given.more = Payload(proof)
    with pytest.raises(DarkroomError, match="rejected before any of it ran"):
        begun(small(3), write_pt(here / "evil.pt", small(3), args=given))
    assert not proof.exists()


def test_a_file_that_is_cut_short_says_so(here):
    with pytest.raises(
        DarkroomError, match=r"cut\.pt is damaged, truncated, or not a file of torch \([\d,]+ bytes.*download it again"
    ):
        begun(small(3), shorten(write_pt(here / "cut.pt", small(3))))
    folder = write_diffusers(here / "some", small(3))
    weights = folder / "diffusion_pytorch_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(DarkroomError, match=r"diffusion_pytorch_model.safetensors is not a complete safetensors file"):
        begun(small(3), folder)
    (here / "page.pt").write_text("<!DOCTYPE html><html>404</html>")
    with pytest.raises(DarkroomError, match=r"page\.pt is damaged, truncated, or not a file of torch"):
        begun(small(3), here / "page.pt")
    (here / "empty.pt").touch()
    with pytest.raises(DarkroomError, match=r"empty\.pt is damaged.* \(0 bytes"):
        begun(small(3), here / "empty.pt")


@pytest.mark.parametrize("content", [{"weight": torch.zeros(2)}, [torch.zeros(2)], {"model": {}}])
def test_what_is_no_dit_says_so(here, content):
    torch.save(content, here / "other.pt")
    with pytest.raises(DarkroomError, match=r"other\.pt holds no DiT: none of its \d tensors is named x_embedder"):
        begun(small(3), here / "other.pt")


LEARNED = r"fit the model:\n  shape: dit/head\.linear\.bias is \[8\] here and \[16\] in the file"


@pytest.mark.parametrize(
    ("form", "changes", "sentence"),
    [
        ("pt", {"depth": 3}, r"do not fit the model:\n  missing: dit/blocks\.2"),
        *((form, {"learned": False}, LEARNED) for form in ("pt", "diffusers")),
        ("pt", {"norm": "rms"}, r"trained with norm layer: set `train_generator.dit.model.norm` to that, not rms"),
        ("pt", {"rope": True}, r"trained with rope False: set `train_generator.dit.model.rope` to that, not True"),
    ],
)
def test_weights_of_another_shape_name_the_key(here, form, changes, sentence):
    source = here / "some.pt"
    source = write_pt(source, small(3)) if form == "pt" else write_diffusers(here / "some", small(3))
    with pytest.raises(DarkroomError, match=rf"some.* {sentence}"):
        begun(small(**{"classes": 3, **changes}), source)


def test_latents_of_another_size_name_both_ways_out(here):
    with pytest.raises(DarkroomError, match=r"shape: dit/positions"):
        _sized(8, write_pt(here / "some.pt", small(3)))
    _sized(8, here / "some.pt", "dit/positions")


def test_a_diffusers_folder_says_the_size_of_its_latents_in_its_config(here):
    """It holds no table of positions, and the other tensors have the same shapes for every size."""
    source = write_diffusers(Path("published"), small(3))
    with pytest.raises(DarkroomError, match="shape: dit/positions"):
        _sized(8, source)


def test_a_file_whose_keys_are_no_names_holds_no_dit(here):
    torch.save({0: torch.zeros(1)}, "numbers.pt")
    with pytest.raises(DarkroomError, match=r"numbers\.pt holds no DiT"):
        begun(small(3), Path("numbers.pt"))


def _sized(size: int, source: Path, *skip: str) -> None:
    from dataclasses import replace

    begun(DiT(replace(small(3).config, size=size)), source, *skip)


def test_other_heads_than_the_file_s_are_refused(here):
    """No tensor shows them, and another number is another network."""
    with pytest.raises(DarkroomError, match=r"has 2 heads: set `train_generator.dit.model.heads` to 2, not 4"):
        begun(small(3, heads=4), write_diffusers(here / "some", small(3)))
    with pytest.raises(DarkroomError, match=r"has 16 heads: .*, not 2"):
        begun(small(3), write_pt(here / "some.pt", small(3), args=arguments("DiT-XL/2")))


def test_blocks_with_embeddings_of_their_own_are_refused(here):
    name = "transformer_blocks.1.norm1.emb.class_embedder.embedding_table.weight"
    source = write_diffusers(here / "some", small(3), **{name: torch.zeros(4, WIDTH)})
    with pytest.raises(DarkroomError, match=r"some.*: its blocks have different embeddings"):
        begun(small(3), source)


def test_other_classes_begin_with_a_random_table_where_asked(here):
    model = small(5)
    before = model.labels.weight.clone()
    found = begun(model, write_pt(here / "some.pt", small(3)), "dit/labels.weight")
    assert torch.equal(found["labels.weight"], before)
    assert torch.equal(found["patches.weight"], small(3).patches.weight)


def test_a_folder_of_ours_is_left_to_the_general_reader(here):
    small(3).save_pretrained(here / "ours")
    assert read_published(here / "ours") is None and read_published(here / "ours/model.safetensors") is None


# ----------------------------------------------------------------------------------------------------------------------
# Stages


def test_a_published_dit_trains_on_and_samples(here):
    """Two updates move each tensor a little from the published ones, and the scale is the fixed one."""
    classes = write_clone()
    published = small(len(classes))
    source = write_pt(here / "some.pt", published, args={"model": "none"})
    sampling = {"model": MODEL, "sampling": DDIM}
    manifest = trained("dit", str(source), diffusion=FIXED, **sampling)
    assert manifest["latent_mean"] == [0.0, 0.0] and manifest["latent_std"] == [2.0, 2.0]
    assert manifest["prediction"]["variance"] == "learned_range" and manifest["images_seen"] == 16
    weights = DiT.from_pretrained(Path("models/generator")).state_dict()
    for name, value in published.state_dict().items():
        moved = (weights[name] - value).abs().max()
        assert moved <= 0.01 and (moved > 0 or name == "positions"), name
    assert sampled("dit")


def test_a_published_dit_is_taken_as_it_is_and_samples(here):
    classes = write_clone()
    published = small(len(classes))
    source = write_diffusers(here / "some", published)
    manifest = trained("pretrained", name=None, folder=str(source), latent_scale=0.5)
    assert manifest["classes"] == classes and manifest["images_seen"] == 0
    assert manifest["latent_std"] == [2.0, 2.0] and manifest["objective"] == "gaussian"
    assert manifest["prediction"]["schedule"] == "linear" and manifest["prediction"]["timesteps"] == 1000
    assert same(DiT.from_pretrained(Path("models/generator")).state_dict(), published.state_dict())
    one = sampled("pretrained")
    trained("pretrained", name=None, folder=str(source), latent_scale=0.1)
    assert sampled("pretrained") != one
    assert sampled("pretrained", solver="ddpm", steps=3, spacing="linspace", guidance_channels=1)


@pytest.mark.slow
def test_a_kill_in_the_middle_of_sampling_published_weights_leaves_no_trace(here, monkeypatch):
    """Nor does the length of the request: noise that is added on the way is each image's own."""
    classes = write_clone()
    trained("pretrained", name=None, folder=str(write_diffusers(here / "some", small(len(classes)))))
    how = {"solver": "ddpm", "steps": 3, "spacing": "linspace"}

    def images(count):
        sampled("pretrained", images=count, **how)
        return np.concatenate(list(ImageShards.open_folder(Path("samples/generator"), "samples").batches(64)))

    found = {count: images(count) for count in (1, 7, 64)}
    assert all((found[count] == found[64][:count]).all() for count in (1, 7))
    keep = KeptBatches.keep

    def killed(self, start, made):
        if start == 12:
            raise SystemExit(143)
        keep(self, start, made)

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(KeptBatches, "keep", killed)
        images(64)
    assert len(list(Path(".darkroom/state").rglob("batches-*/*.npy"))) == 3
    np.testing.assert_array_equal(images(64), found[64])


@pytest.mark.parametrize(
    "names", ["catalog", "file", *(pytest.param(each, marks=pytest.mark.slow) for each in ("pipeline", "none"))]
)
def test_other_classes_are_named_by_the_file_beside_the_weights(here, names, capsys):
    known = write_clone()
    count = len(known) if names == "catalog" else 3
    folder = here / "some"
    write_diffusers(folder / "transformer", small(count))
    if names == "file":
        (folder / "classes.txt").write_text("a cat\na dog\nan ape\n")
    if names == "pipeline":
        (folder / "model_index.json").write_text(json.dumps({"id2label": {"0": "a cat", "1": "a dog", "2": "an ape"}}))
    found = trained("pretrained", name=None, folder=str(folder))["classes"]
    expected = {"catalog": known, "none": ["0", "1", "2"]}
    assert found == expected.get(names, ["a cat", "a dog", "an ape"])
    assert sampled("pretrained")


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ({"folder": "nowhere"}, r"`train_generator.pretrained.folder` names nowhere, which does not exist"),
        ({"folder": "some.pt"}, r"some.pt has a width of 16, but `heads` is None: set it to the attention heads"),
        ({"folder": "some.pt", "heads": 3}, r"`heads` is 3"),
        (
            {"folder": "some.pt", "heads": 2, "variance": "fixed_small"},
            r"2 outputs a channel, .*set it to learned_range",
        ),
        ({"folder": "large.pt", "heads": 2}, r"latents of 2 x 8 x 8, but models/tokenizer makes 2 x 4 x 4"),
        ({"folder": "models/tokenizer"}, r"models/tokenizer holds no published DiT"),
    ],
)
def test_what_cannot_be_taken_is_a_sentence(here, section, sentence):
    from dataclasses import replace

    write_clone()
    write_pt(here / "some.pt", small(3))
    write_pt(here / "large.pt", DiT(replace(small(3).config, size=8)))
    with pytest.raises(DarkroomError, match=sentence):
        trained("pretrained", **{"name": None, **section})
    assert not Path("models/generator").exists()


def test_a_normalisation_that_is_none_is_refused():
    with pytest.raises(DarkroomError, match=re.escape("`normalise` is 'fix', but must be one of principal")):
        validate(DiTDiffusion, {"normalise": "fix"})
    with pytest.raises(DarkroomError, match="latent_scale"):
        validate(DiTDiffusion, {"normalise": "fixed", "latent_scale": 0.0})
