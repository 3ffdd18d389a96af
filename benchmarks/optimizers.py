"""What a step of Muon takes, against AdamW's and against torch's own Muon, on the gradients of four networks.

`torch.optim.Muon` takes matrices alone, so it gets the same weights as matrices, which a convolution's are not: nothing
is saved or lost by that but the flattening. The rest moves by fused AdamW in all. Each optimizer has its own copy of
the network and the same random gradients, and all take turns of one step each, with `--threads` of them (1); so do the
passes forward and backward of a batch (64 latents, 32 images of the U-Net; of DiT-S/4 also 256, as it was published).
With `--precision bf16` the passes and ours compute in bfloat16, as a training of that precision does; torch's always
does.

Run it on a quiet machine: `.venv/bin/python benchmarks/optimizers.py [--threads N] [--precision bf16]`. Prints a
Markdown table: the median of a step, and as a fraction of the passes.
"""

import argparse
import copy
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from darkroom.models.decoder.data import Conditioner, PixelSpace  # noqa: E402
from darkroom.models.decoder.network import Conditions, DecoderUNet  # noqa: E402
from darkroom.models.decoder.opening import DecoderData, config_of  # noqa: E402
from darkroom.models.generators.dit.config import DiTConfig  # noqa: E402
from darkroom.models.generators.dit.network import DiT  # noqa: E402
from darkroom.training.optimizer import build_optimizer  # noqa: E402
from darkroom.training.precision import autocast  # noqa: E402
from helpers import training  # noqa: E402
from models.decoder.small_decoder import section  # noqa: E402


def unet() -> nn.Module:
    """Return a base U-Net of the size that `shapes-text` trains."""
    model = {"channels": [32, 64], "attention": [False, False], "layers": 1, "norm_groups": 8, "patch": 2}
    told = {"image_tokens": 0, "image_to_time": True, "image_map": 8, "text_tokens": False}
    opened = DecoderData(PixelSpace(), Conditioner(), {}, 3, {}, 256, None)
    return DecoderUNet(config_of(section(model=model | told, size=32), opened))


def unet_output(network: nn.Module) -> Tensor:
    """Return what the U-Net makes of a batch of 32 images."""
    return network(torch.randn(32, 3, 32, 32), torch.rand(32) * 1000, Conditions(torch.randn(32, 256)))


def dit_output(network: nn.Module, batch: int = 64) -> Tensor:
    """Return what a transformer makes of a batch of latents."""
    size = network.config.size
    return network(torch.randn(batch, 4, size, size), torch.rand(batch) * 1000, torch.zeros(batch, dtype=torch.int64))


def matrices(module: nn.Module, made: torch.optim.Optimizer) -> tuple[Callable[[], None], list[nn.Parameter]]:
    """Return a step of torch's Muon and AdamW over what ours gives to each, and the matrices that it moves."""
    moved = [p for group in made.param_groups if group["muon"] for p in group["params"]]
    rest = [p for group in made.param_groups if not group["muon"] for p in group["params"]]
    flat = [nn.Parameter(parameter.detach().flatten(1)) for parameter in moved]
    muon = torch.optim.Muon(flat, lr=1e-3, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    adamw = torch.optim.AdamW(rest, lr=1e-3, fused=True)

    def step() -> None:
        for matrix, parameter in zip(flat, moved, strict=True):
            matrix.grad = parameter.grad.flatten(1)  # type: ignore[union-attr]
        muon.step()
        adamw.step()

    return step, flat


def measure(name: str, network: nn.Module, output: Callable[[nn.Module], Tensor], precision: str, turns: int) -> str:
    """Return a row of the table."""
    torch.manual_seed(0)
    copies = [copy.deepcopy(network) for _ in range(5)]
    gradients = [torch.randn_like(parameter) for parameter in network.parameters()]
    told = {"optimizer": "muon", "precision": precision}
    settings = [training(), training(**told), training(**told, muon_chunks=True)]
    adamw, muon, chunks = (build_optimizer(*each) for each in zip(copies, settings, strict=False))
    theirs, flat = matrices(copies[3], build_optimizer(copies[3], training(**told)))

    def passes_of_a_batch() -> None:
        with autocast(settings[1], torch.device("cpu")):
            loss = output(copies[4]).float().square().mean()
        loss.backward()

    steps = (adamw.step, muon.step, chunks.step, theirs, passes_of_a_batch)
    taken: list[list[float]] = [[] for _ in steps]
    for turn in range(turns + 3):
        for module, step, times in zip(copies, steps, taken, strict=True):
            for parameter, gradient in zip(module.parameters(), gradients, strict=True):
                parameter.grad = gradient.clone()
            began = time.perf_counter()
            step()
            if turn >= 3:
                times.append(1e3 * (time.perf_counter() - began))
    *each, passes = (statistics.median(times) for times in taken)
    share = sum(matrix.numel() for matrix in flat) / sum(parameter.numel() for parameter in network.parameters())
    cells = " | ".join(f"{taken:.2g} ({taken / passes:.0%})" for taken in each)
    return f"| {name}, {share:.0%} of weights by Muon | {passes:.3g} | {cells} |"


def main() -> None:
    """Measure the networks and print the table."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--turns", type=int, default=60)
    arguments.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    given = arguments.parse_args()
    torch.set_num_threads(given.threads)
    head = f"| {given.threads} threads, {given.precision}, ms | passes | AdamW | `muon` | with `muon_chunks`"
    print(f"{head} | torch.optim.Muon |\n|---|---|---|---|---|---|")
    small = DiT(DiTConfig(4, 32, 1000, 384, 12, 6, 4))
    for name, network, output in (
        ("base U-Net of `shapes-text`", unet(), unet_output),
        ("the default DiT", DiT(DiTConfig(4, 16, 10, 128, 4, 4, 2)), dit_output),
        ("DiT, width 192, depth 6, 16 tokens", DiT(DiTConfig(4, 8, 6, 192, 6, 6, 2)), dit_output),
        *((f"DiT-S/4, batch {batch}", small, partial(dit_output, batch=batch)) for batch in (64, 256)),
    ):
        turns = max(3, given.turns // 6) if network is small else given.turns
        print(measure(name, network, output, given.precision, turns), flush=True)


if __name__ == "__main__":
    main()
