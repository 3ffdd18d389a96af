"""Files of dalle-pytorch and of muse-maskgit-pytorch: read as they are written there, and written back bit for bit.

Beside the originals' code: `originals/test_originals.py` has the same weights in both.
"""

import os
import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from vector_quantize_pytorch import LFQ

from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.cli import main
from darkroom.errors import DarkroomError
from darkroom.models.tokenizers.adversarial import PatchDiscriminator
from darkroom.models.tokenizers.dvae.tokenizer import DiscreteVAE
from darkroom.models.tokenizers.vqgan.network import VQGANTokenizer, config_of
from darkroom.params.training import Init
from darkroom.training.initial import initialise
from helpers import DIGITS
from models.tokenizers.dvae_reference import Reference, images, settings
from models.tokenizers.small_vqgan import section

HPARAMS = {
    "image_size": 16,
    "num_layers": 2,
    "num_tokens": 6,
    "channels": 3,
    "codebook_dim": 3,
    "hidden_dim": 8,
    "num_resnet_blocks": 1,
}

ROOT = Path(__file__).parents[3]


def dvae(channels: int = 3, size: int = 16, seed: int = 0, **changes: Any) -> DiscreteVAE:
    torch.manual_seed(seed)
    return DiscreteVAE.from_settings(settings(**changes), (channels, size, size)).eval()


def dalle_file(path: Path, hparams: dict[str, Any] | None = None, **changes: Any) -> DiscreteVAE:
    """Write what `train_vae.py` writes, and return the network that it holds."""
    model = dvae(seed=5, **changes)
    torch.save({"hparams": HPARAMS | (hparams or {}), "weights": model.network.state_dict()}, path)
    return model


def read_into(model: nn.Module, path: Path, **modules: nn.Module) -> None:
    initialise({"tokenizer": model, **modules}, Init(folder=str(path)))


# ----------------------------------------------------------------------------------------------------------------------
# dalle-pytorch


@pytest.mark.parametrize("folder", [False, True])
def test_a_file_of_dalle_is_read_and_written_back_bit_for_bit(tmp_path: Path, folder: bool) -> None:
    theirs, ours = dalle_file(tmp_path / "vae.pt"), dvae()
    read_into(ours, tmp_path if folder else tmp_path / "vae.pt")
    given = images(3)
    reference = Reference({n: v.detach() for n, v in theirs.network.state_dict().items()}, 2, 1)
    logits = reference.logits(ours.pixels(given).double())
    assert torch.allclose(ours.logits(ours.pixels(given)).double(), logits, rtol=1e-5, atol=1e-6)
    back = ours.original()
    assert back["hparams"] == HPARAMS
    assert back["weights"].keys() == theirs.network.state_dict().keys()
    assert all(torch.equal(back["weights"][name], value) for name, value in theirs.network.state_dict().items())


def test_other_numbers_of_normalisation_go_both_ways(tmp_path: Path) -> None:
    given = {"mean": [0.4, 0.3, 0.2], "std": [0.2, 0.3, 0.4]}
    hparams = dvae(**given).original()["hparams"]
    assert hparams["normalization"] == ((0.4, 0.3, 0.2), (0.2, 0.3, 0.4))
    dalle_file(tmp_path / "vae.pt", hparams)
    read_into(dvae(**given), tmp_path / "vae.pt")
    with pytest.raises(DarkroomError, match=re.escape("set `train_tokenizer.dvae.mean` to [0.4, 0.3, 0.2] and `.std`")):
        read_into(dvae(), tmp_path / "vae.pt")
    dalle_file(tmp_path / "none.pt", {"normalization": None})
    read_into(dvae(mean=[0.0, 0.0, 0.0], std=[1.0, 1.0, 1.0]), tmp_path / "none.pt")


def test_alpha_has_the_range_of_the_original(tmp_path: Path) -> None:
    dalle_file(tmp_path / "vae.pt", {"channels": 4}, channels=4)
    read_into(dvae(4, alpha="unit"), tmp_path / "vae.pt")
    with pytest.raises(DarkroomError, match=r"set `train_tokenizer.dvae.alpha` to unit"):
        read_into(dvae(4), tmp_path / "vae.pt")


@pytest.mark.parametrize(
    ("hparams", "changes", "sentence"),
    [
        ({}, {"codebook_size": 8}, "shape: tokenizer/network.codebook.weight"),
        ({}, {"residual_blocks": 2}, "missing: tokenizer/network."),
        ({"image_size": 32}, {}, "images of 32 pixels: set `ingest.image_size` to 32, not 16"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(
    tmp_path: Path, hparams: dict[str, Any], changes: dict[str, Any], sentence: str
) -> None:
    dalle_file(tmp_path / "vae.pt", hparams)
    with pytest.raises(DarkroomError, match=re.escape(sentence)):
        read_into(dvae(**changes), tmp_path / "vae.pt")


class Evil:
    """What a pickle would run."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("ran",)


@pytest.mark.parametrize("kind", ["dvae", "vqgan"])
def test_a_pickle_that_would_run_code_is_refused_before_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    model: nn.Module = dvae() if kind == "dvae" else vqgan()
    torch.save({"hparams": Evil(), "weights": {}}, "vae.pt")
    Path("old.pt").write_bytes(pickle.dumps(Evil(), protocol=2))
    for name in ("vae.pt", "old.pt"):
        with pytest.raises(DarkroomError, match="rejected before any of it ran"):
            read_into(model, Path(name))
    assert not Path("ran").exists()
    dalle_file(Path("whole.pt"))
    Path("short.pt").write_bytes(Path("whole.pt").read_bytes()[:1000])
    with pytest.raises(DarkroomError, match="damaged, truncated"):
        read_into(model, Path("short.pt"))
    torch.save({"state": torch.zeros(3)}, "other.pt")
    with pytest.raises(DarkroomError, match=r"[Uu]se a file"):
        read_into(model, Path("other.pt"))


# ----------------------------------------------------------------------------------------------------------------------
# muse-maskgit-pytorch: the layers of its constructor, in its order, written here from their description


def leaky() -> nn.LeakyReLU:
    return nn.LeakyReLU(0.1)


def level(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(*layers)


class Block(nn.Module):
    """`net`, and what goes in beside it."""

    def __init__(self, width: int, gated: bool) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(2):
            if gated:
                layers += [nn.Conv2d(width, 2 * width, 3, padding=1), nn.GLU(dim=1), nn.GroupNorm(4, width)]
            else:
                layers += [nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(4, width), leaky()]
        self.net = nn.Sequential(*layers, nn.Conv2d(width, width, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x) + x


class Muse(nn.Module):
    """Its modules under its names: width 8, 2 layers, 1 residual block, 16 codes; a discriminator of two levels."""

    def __init__(self) -> None:
        super().__init__()
        down = [level(nn.Conv2d(*pair, 4, 2, 1), leaky()) for pair in ((8, 8), (8, 16))]
        up = [level(nn.ConvTranspose2d(*pair, 4, 2, 1), leaky()) for pair in ((16, 8), (8, 8))]
        encoders = [nn.Conv2d(3, 8, 5, padding=2), *down, Block(16, False)]
        decoders = [Block(16, True), *up, nn.Conv2d(8, 3, 1)]
        self.enc_dec = nn.ModuleDict({"encoders": nn.ModuleList(encoders), "decoders": nn.ModuleList(decoders)})
        self.quantizer = LFQ(dim=16, codebook_size=16)
        self.discr = nn.Module()
        self.discr.layers = nn.ModuleList(
            [
                level(nn.Conv2d(3, 8, 5, padding=2), leaky()),
                level(nn.Conv2d(8, 8, 4, 2, 1), nn.GroupNorm(4, 8), leaky()),
            ]
        )
        self.discr.to_logits = level(nn.Conv2d(8, 8, 1), leaky(), nn.Conv2d(8, 1, 4))

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for layer in self.enc_dec["encoders"]:
            x = layer(x)
        x, codes, _ = self.quantizer(x)
        for layer in self.enc_dec["decoders"]:
            x = layer(x)
        return x, codes

    @torch.no_grad()
    def judge(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.discr.layers:
            x = layer(x)
        return self.discr.to_logits(x)


def muse() -> Muse:
    torch.manual_seed(7)
    return Muse().eval()


def vqgan(**changes: Any) -> VQGANTokenizer:
    torch.manual_seed(1)
    keys = {"quantiser": "lfq", "pixels": "unit", **changes}
    return VQGANTokenizer(config_of(section(**keys), (3, 16, 16))).eval()


def wrapped(theirs: Muse, form: str) -> dict[str, Any]:
    """Return what its trainer writes: `vae.N.pt`, `vae.N.ema.pt`, or all that it goes on from."""
    state = theirs.state_dict()
    if form == "ema":
        own = {f"ema_model.{name}": value for name, value in state.items()}
        return own | {f"online_model.{name}": 0 * value for name, value in state.items()} | {"step": torch.tensor(3)}
    return {"model": state, "optim": {"state": {}}, "discr_optim": {"state": {}}} if form == "all" else state


@pytest.mark.parametrize(("form", "with_discriminator"), [("model", True), ("ema", True), ("all", False)])
@torch.no_grad()
def test_a_file_of_muse_gives_its_numbers_and_is_written_back_bit_for_bit(
    tmp_path: Path, form: str, with_discriminator: bool
) -> None:
    theirs, ours, given = muse(), vqgan(), images(4)
    torch.save(wrapped(theirs, form), tmp_path / "vae.3000.pt")
    torch.manual_seed(2)
    discriminator = PatchDiscriminator(3, [8, 8], 4)
    read_into(ours, tmp_path / "vae.3000.pt", **({"discriminator": discriminator} if with_discriminator else {}))
    wanted, codes = theirs(given / 255)
    output, quantised = ours(ours.pixels(given))
    assert torch.equal(quantised.codes, codes.view(4, 4, 4))
    assert torch.allclose(output, wanted, rtol=1e-5, atol=1e-6)
    assert with_discriminator == torch.allclose(discriminator(given / 255), theirs.judge(given / 255), atol=1e-6)
    state, back = theirs.state_dict(), ours.original()
    assert {name for name in state if not name.startswith("discr.")} == back.keys()
    assert all(torch.equal(value, state[name]) for name, value in back.items())


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"pixels": "signed"}, "set `train_tokenizer.vqgan.pixels` to unit"),
        ({"quantiser": "vq"}, "`train_tokenizer.vqgan.quantiser` is vq: set it to lfq"),
        ({"codebook_size": 32}, "shape: tokenizer/quantiser.counts"),
        ({"width": 16}, "shape: tokenizer/decoder."),
    ],
)
def test_a_network_that_differs_from_the_file_is_refused(
    tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    torch.save(muse().state_dict(), tmp_path / "vae.pt")
    with pytest.raises(DarkroomError, match=re.escape(sentence)):
        read_into(vqgan(**changes), tmp_path / "vae.pt")


def test_residual_blocks_at_other_resolutions_are_refused(tmp_path: Path) -> None:
    state = muse().state_dict()
    moved = {"1": "3", "3": "1"}
    changed = {re.sub(r"encoders\.([13])\.", lambda m: f"encoders.{moved[m[1]]}.", k): v for k, v in state.items()}
    torch.save(changed, tmp_path / "vae.pt")
    with pytest.raises(DarkroomError, match="residual blocks before its last layer"):
        read_into(vqgan(), tmp_path / "vae.pt")


# ----------------------------------------------------------------------------------------------------------------------
# darkroom export --model tokenizer


def as_artifact(model: Any, kind: str) -> None:
    folder = Path("models/tokenizer")
    model.save_pretrained(folder)
    shape = [3, 16, 16]
    hashes = file_hashes(folder)
    write_manifest(
        folder, "tokenizer", tokenizer_kind=kind, image_shape=shape, latent_shape=[3, 4, 4], images_seen=7, files=hashes
    )


@pytest.mark.parametrize("kind", ["dvae", "vqgan"])
def test_the_export_is_a_file_of_the_original_that_is_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in (DIGITS, ROOT / "dvc.yaml"):
        shutil.copy(file, file.name)
    model, fresh = (dvae(seed=3), dvae()) if kind == "dvae" else (vqgan(), vqgan())
    as_artifact(model, kind)
    assert main(["export", "--model", "tokenizer", "--format", "pt", "--out", "out"]) == 0
    read_into(fresh, Path("out/vae.pt"))
    counts = "quantiser.counts"  # of a training, which the original has not
    assert all(
        torch.equal(value, fresh.state_dict()[name]) for name, value in model.state_dict().items() if name != counts
    )
    assert main(["export", "--model", "tokenizer", "--format", "safetensors", "--out", "own"]) == 0
    assert type(model).from_pretrained(Path("own")).config == model.config
    capsys.readouterr()
    assert main(["export", "--model", "tokenizer", "--format", "diffusers", "--out", "other"]) == 1
    assert "use --format safetensors or pt" in capsys.readouterr().err


def test_what_the_original_cannot_hold_is_not_exported(tmp_path: Path) -> None:
    with pytest.raises(DarkroomError, match=r"`ingest.image_size` is 24, but dalle-pytorch needs a power of two"):
        dvae(size=24).original()
    with pytest.raises(DarkroomError, match=r"`train_tokenizer.vqgan.quantiser` is vq"):
        vqgan(quantiser="vq").original()
    with pytest.raises(DarkroomError, match=r"`train_tokenizer.vqgan.pixels` is signed"):
        vqgan(pixels="signed").original()
