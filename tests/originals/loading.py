"""Definitions of an original, without what else is in its file. Runs in the environment of the originals."""

import ast
import importlib.util
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from originals.environment import ARCHIVES, unpacked


def part(source: Path, *names: str, **given: Any) -> ModuleType:
    """Return a module with some definitions of a file and all of the file that they refer to; nothing else is run.

    So no system's other modules are imported for it, and no script trains or removes folders.

    Args:
        source: the file.
        names: of the definitions.
        given: what stands for a name, in place of the file's own.
    """
    tree = ast.parse(source.read_text())
    bound = {name: node for node in tree.body for name in _binds(node)}
    kept: list[ast.stmt] = [n for n in tree.body if isinstance(n, ast.ImportFrom) and n.module == "__future__"]
    left = list(names)
    while left:
        name = left.pop()
        node = bound.get(name)
        if name in given or node is None or node in kept:
            continue
        kept.append(node)
        left += [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]
    module = ModuleType(source.stem)
    vars(module).update(given)
    body = [node for node in tree.body if node in kept]
    exec(compile(ast.Module(body, []), str(source), "exec"), vars(module))
    return module


def _binds(node: ast.stmt) -> list[str]:
    """Return the names that a statement of a module gives a value."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [(alias.asname or alias.name).split(".")[0] for alias in node.names]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return []


def _folder(package: str) -> Path:
    """Return where a package lies, without importing it."""
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations)))


def dalle() -> ModuleType:
    """Return dalle-pytorch's `DiscreteVAE`, without DeepSpeed."""
    alone = SimpleNamespace(is_distributed=False)
    return part(_folder("dalle_pytorch") / "dalle_pytorch.py", "DiscreteVAE", distributed_utils=alone)


def muse() -> ModuleType:
    """Return muse-maskgit-pytorch's `VQGanVAE`."""
    return part(_folder("muse_maskgit_pytorch") / "vqgan_vae.py", "VQGanVAE")


def taming() -> ModuleType:
    """Return taming-transformers' `VQLPIPSWithDiscriminator`, which takes any perceptual loss and discriminator."""
    losses = _folder("taming") / "modules" / "losses" / "vqperceptual.py"
    return part(
        losses,
        "VQLPIPSWithDiscriminator",
        LPIPS=torch.nn.Identity,
        NLayerDiscriminator=lambda **_: torch.nn.Identity(),
        weights_init=lambda _: None,
    )


def genie() -> ModuleType:
    """Return genie2-pytorch's `VQImageAutoregressiveAutoencoder`, and in `sampling` what it draws codes with."""
    home = unpacked(ARCHIVES["vq_ar"])
    sampling = part(home / "genie2_pytorch" / "genie2.py", "gumbel_sample", "min_p_filter")
    known = {"gumbel_sample": sampling.gumbel_sample, "min_p_filter": sampling.min_p_filter}
    module = part(home / "train_vq_e2e.py", "VQImageAutoregressiveAutoencoder", **known)
    module.sampling = sampling  # type: ignore[attr-defined]
    return module


def unclip(**given: Any) -> ModuleType:
    """Return DALLE2-pytorch's `Unet`, `Decoder`, `LowresConditioner`, and in `DecoderTrainer` what updates them.

    Neither CLIP nor a VQGAN is in it: embeddings and pixels are given.

    Args:
        given: what stands for a name of its main file, in place of that file's own.
    """
    home = _folder("dalle2_pytorch")
    no_vae = part(home / "vqgan_vae.py", "NullVQGanVAE").NullVQGanVAE
    absent = {name: type(name, (), {}) for name in ("CLIP", "CoCa", "VQGanVAE")}
    apart = {"NullVQGanVAE": no_vae, "resize": None, "K": None, **absent, **given}
    module = part(home / "dalle2_pytorch.py", "Unet", "Decoder", "LowresConditioner", **apart)
    optimizer = part(home / "optimizer.py", "get_optimizer")
    trainer = part(
        home / "trainer.py",
        "DecoderTrainer",
        Decoder=module.Decoder,
        get_optimizer=optimizer.get_optimizer,
        warmup=None,
        __version__="",
    )
    module.DecoderTrainer = trainer.DecoderTrainer  # type: ignore[attr-defined]
    return module
