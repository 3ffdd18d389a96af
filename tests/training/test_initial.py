"""Fine-tuning: the weights that `init` names are those that the modules begin with, and nothing else is."""

import fsspec
import pytest
import torch
from safetensors.torch import load_file, save, save_file
from torch import nn

from darkroom.artifacts.manifest import file_hashes, sha256_file, write_manifest
from darkroom.errors import DarkroomError
from darkroom.models.generators.dit.config import DiTConfig
from darkroom.models.generators.dit.network import DiT
from darkroom.models.tokenizers.kl.network import KLAutoencoder, build
from darkroom.params.training import Init
from darkroom.training.initial import initialise
from models.tokenizers.sections import kl


def init(folder="data/none", url=None, sha256=None, skip=()):
    return Init(folder=str(folder), url=url, sha256=sha256, skip=list(skip))


def dit(seed, classes=3):
    torch.manual_seed(seed)
    model = DiT(DiTConfig(channels=2, size=4, classes=classes, width=16, depth=1, heads=2, patch=2))
    for parameter in model.parameters():
        nn.init.normal_(parameter)  # the gates begin at zero, which would hide that they are not read
    return model


def tokenizer(seed):
    torch.manual_seed(seed)
    return KLAutoencoder(build(kl(), 3, 16))


def pair(seed):
    torch.manual_seed(seed)
    return {"tokenizer": nn.Linear(2, 3), "discriminator": nn.BatchNorm1d(3)}


def same(one, other):
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(a[0] == b[0] and torch.equal(a[1], b[1]) for a, b in pairs)


MODELS = {"dit": dit, "tokenizer": tokenizer}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_ROOT", raising=False)


@pytest.mark.parametrize("name", MODELS)
def test_each_model_begins_with_what_its_save_pretrained_wrote(tmp_path, capsys, name):
    before, after = MODELS[name](0), MODELS[name](1)
    before.save_pretrained(tmp_path / "models")
    assert not same(before, after)
    initialise({name: after}, init(tmp_path / "models"))
    assert same(before, after)
    tensors, values = len(before.state_dict()), sum(value.numel() for value in before.state_dict().values())
    told = f"initialised from {tmp_path / 'models'}: {tensors} tensors, {values:,} values\n"
    assert told in capsys.readouterr().out


def test_without_a_source_nothing_changes():
    model = dit(0)
    initialise({"dit": model}, init())
    assert same(model, dit(0))


def test_files_of_stable_diffusions_time_are_read(tmp_path):
    """The four projections of each attention by their older names, as diffusers itself still reads them."""
    before, after = tokenizer(0), tokenizer(1)
    before.save_pretrained(tmp_path)
    path = tmp_path / "diffusion_pytorch_model.safetensors"
    older = {".to_q.": ".query.", ".to_k.": ".key.", ".to_v.": ".value.", ".to_out.0.": ".proj_attn."}
    tensors = load_file(path)
    for new, old in older.items():
        tensors = {name.replace(new, old): value for name, value in tensors.items()}
    save_file(tensors, path, metadata={"format": "pt"})
    assert sum("proj_attn" in name for name in tensors) == 4
    assert same(KLAutoencoder.from_pretrained(tmp_path), before)
    initialise({"tokenizer": after}, init(tmp_path))
    assert same(before, after)


@pytest.mark.parametrize("layout", ["files", "folders", "top", "one file", "one named file"])
def test_several_modules_find_their_weights_by_name(tmp_path, layout):
    before, after = pair(0), pair(1)
    before["discriminator"].running_mean.fill_(5.0)
    folder = tmp_path / "weights"
    states = {name: module.state_dict() for name, module in before.items()}
    files = {
        "files": {f"{name}.safetensors": state for name, state in states.items()},
        "folders": {f"{name}/model.safetensors": state for name, state in states.items()},
        "top": {"model.safetensors": states["tokenizer"], "discriminator.safetensors": states["discriminator"]},
        "one file": {"model.safetensors": {f"{n}/{k}": v for n, state in states.items() for k, v in state.items()}},
    }
    files["one named file"] = {"modules.safetensors": files["one file"]["model.safetensors"]}
    for name, state in files[layout].items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        save_file(state, folder / name)
    initialise(after, init(folder / "modules.safetensors" if layout == "one named file" else folder))
    assert all(same(before[name], after[name]) for name in before)


def test_a_module_without_weights_begins_at_random_only_by_name(tmp_path):
    before, after, untouched = pair(0), pair(1), pair(1)
    save_file(before["tokenizer"].state_dict(), tmp_path / "model.safetensors")
    with pytest.raises(DarkroomError, match=r"missing: discriminator/bias \[3\]\n.*missing: discriminator/num_batches"):
        initialise(after, init(tmp_path))
    assert same(after["tokenizer"], untouched["tokenizer"])  # nothing is copied where something does not fit
    initialise(after, init(tmp_path, skip=["discriminator/*"]))
    assert same(after["tokenizer"], before["tokenizer"]) and same(after["discriminator"], untouched["discriminator"])


def test_all_that_does_not_fit_is_in_one_list_and_can_be_skipped(tmp_path, capsys):
    before, after, untouched = dit(0), dit(1, classes=7), dit(1, classes=7)
    state = before.state_dict()
    state["old.weight"] = torch.zeros(2)
    state["head.linear.bias"] = state["head.linear.bias"].int()
    del state["patches.bias"]
    save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(DarkroomError) as caught:
        initialise({"dit": after}, init(tmp_path))
    assert [line for line in str(caught.value).splitlines() if line.startswith("  ")] == [
        "  type: dit/head.linear.bias is torch.float32 here and torch.int32 in the file",
        "  shape: dit/labels.weight is [8, 16] here and [4, 16] in the file",
        "  unexpected: dit/old.weight [2]",
        "  missing: dit/patches.bias [16]",
    ]
    assert "init.skip" in str(caught.value)
    skip = ["dit/head.*", "dit/labels.weight", "dit/old.*", "dit/patches.bias"]
    initialise({"dit": after}, init(tmp_path, skip=skip))
    result, fresh = after.state_dict(), untouched.state_dict()
    random = {key for key in result if torch.equal(result[key], fresh[key])} - {"positions"}  # a fixed table
    assert random == {key for key in fresh if key.startswith("head.")} | {"labels.weight", "patches.bias"}
    assert all(torch.equal(result[key], before.state_dict()[key]) for key in result.keys() - random)
    assert f"{len(random)} at random" in capsys.readouterr().out


def test_a_glob_that_names_nothing_is_an_error(tmp_path):
    dit(0).save_pretrained(tmp_path)
    with pytest.raises(DarkroomError, match=r"no weight matches dit/label\*x"):
        initialise({"dit": dit(1)}, init(tmp_path, skip=["dit/labels.*", "dit/label*x"]))


def test_half_precision_of_a_file_becomes_the_modules_own(tmp_path):
    model = nn.Linear(2, 2)
    values = torch.tensor([[1.5, -2.0], [0.25, 4.0]])
    save_file({"weight": values.half(), "bias": torch.ones(2).bfloat16()}, tmp_path / "model.safetensors")
    initialise({"a": model}, init(tmp_path))
    assert model.weight.dtype == torch.float32 and torch.equal(model.weight, values) and model.weight.requires_grad


def test_a_file_that_is_not_what_its_manifest_says_is_refused(tmp_path):
    dit(0).save_pretrained(tmp_path)
    write_manifest(tmp_path, "dit", files=file_hashes(tmp_path))
    path = tmp_path / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1  # safetensors loads a flipped byte in silence
    path.write_bytes(data)
    with pytest.raises(DarkroomError, match="corrupted"):
        initialise({"dit": dit(1)}, init(tmp_path))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "diffusion_pytorch_model.bin"])
def test_a_folder_of_pickles_is_refused(tmp_path, name):
    torch.save(dit(0).state_dict(), tmp_path / name)
    with pytest.raises(DarkroomError, match=rf"{name} is a pickle.*convert it"):
        initialise({"dit": dit(1)}, init(tmp_path))


def test_a_folder_without_weights_or_with_two_of_them_is_refused(tmp_path):
    with pytest.raises(DarkroomError, match=r"contains no weights.*model.safetensors.*\(dit\)"):
        initialise({"dit": dit(1)}, init(tmp_path))
    for name in ("model.safetensors", "diffusion_pytorch_model.safetensors"):
        save_file(dit(0).state_dict(), tmp_path / name)
    with pytest.raises(DarkroomError, match=r"model.safetensors and diffusion_pytorch_model.safetensors"):
        initialise({"dit": dit(1)}, init(tmp_path))


def test_a_truncated_file_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(save(dit(0).state_dict())[:-5])
    with pytest.raises(DarkroomError, match="not a complete safetensors file"):
        initialise({"dit": dit(1)}, init(tmp_path))


class TestURL:
    @pytest.fixture
    def url(self, tmp_path):
        """Return where a DiT's weights lie in a file system in memory, and their hash."""
        dit(0).save_pretrained(tmp_path / "m")
        path = tmp_path / "m" / "model.safetensors"
        with fsspec.open("memory://weights/dit.safetensors", "wb") as file:
            file.write(path.read_bytes())
        yield "memory://weights/dit.safetensors", sha256_file(path)
        fsspec.filesystem("memory").store.clear()

    def test_is_downloaded_once_and_checked(self, url, tmp_path):
        for _ in range(2):
            model = dit(1)
            initialise({"dit": model}, init(url=url[0], sha256=url[1]))
            assert same(model, dit(0))
            fsspec.filesystem("memory").store.clear()  # the second time without a network
        assert [path.name for path in (tmp_path / ".darkroom/downloads").iterdir()] == [f"{url[1]}.safetensors"]

    def test_a_hash_that_is_not_given_is_told_and_the_file_kept(self, url):
        with pytest.raises(DarkroomError, match=rf"sha256 {url[1]}: set `init.sha256` to it in params.yaml"):
            initialise({"dit": dit(1)}, init(url=url[0]))
        fsspec.filesystem("memory").store.clear()
        initialise({"dit": dit(1)}, init(url=url[0], sha256=url[1]))

    def test_another_file_is_refused_before_reading(self, url, monkeypatch):
        monkeypatch.setattr("darkroom.training.initial.read_weights", lambda path: pytest.fail("read"))
        with pytest.raises(DarkroomError, match=rf"has the sha256 {url[1]}, but `init.sha256`.* is {'0' * 64}"):
            initialise({"dit": dit(1)}, init(url=url[0], sha256="0" * 64))

    def test_a_download_that_was_damaged_is_fetched_again(self, url, tmp_path):
        initialise({"dit": dit(1)}, init(url=url[0], sha256=url[1]))
        (tmp_path / ".darkroom/downloads" / f"{url[1]}.safetensors").write_bytes(b"damaged")
        model = dit(1)
        initialise({"dit": model}, init(url=url[0], sha256=url[1]))
        assert same(model, dit(0))

    def test_a_local_file_by_url(self, url, tmp_path):
        path = tmp_path / "m" / "model.safetensors"
        model = dit(1)
        initialise({"dit": model}, init(url=f"file://{path}", sha256=url[1]))
        assert same(model, dit(0))

    def test_the_main_checkouts_folder_is_used_in_a_queued_experiment(self, url, tmp_path, monkeypatch):
        monkeypatch.setenv("DVC_ROOT", str(tmp_path / "main"))
        initialise({"dit": dit(1)}, init(url=url[0], sha256=url[1]))
        assert (tmp_path / "main/.darkroom/downloads" / f"{url[1]}.safetensors").is_file()

    @pytest.mark.parametrize(
        ("address", "sentence"),
        [
            (
                "memory://none.safetensors",
                "memory://none.safetensors cannot be read.*FileNotFoundError",
            ),
            ("nosuch://weights/a.safetensors", "cannot be read: Protocol not known"),
            ("https://ann:secret@example.org/a.safetensors", "`init.url` contains a password"),
            ("https://example.org/a.ckpt?download=true", "is a pickle"),
        ],
    )
    def test_what_cannot_be_had_is_a_sentence(self, tmp_path, address, sentence):
        with pytest.raises(DarkroomError, match=sentence) as caught:
            initialise({"dit": dit(1)}, init(url=address, sha256="0" * 64))
        assert "secret" not in str(caught.value)
        downloads = tmp_path / ".darkroom/downloads"
        assert not downloads.exists() or not list(downloads.iterdir())
