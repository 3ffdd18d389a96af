"""What a GPU makes of training diffusion transformers: images/s, fraction of its peak, memory, beside a bare loop.

DiT-B/2, L/2 and XL/2 (Peebles and Xie, 2023, arXiv 2212.09748, table 1) learn from latents of 4×32×32, of images of 256
pixels, that stand in shards of the stage's own format. Each row is a process of its own that takes optimizer steps as
`darkroom train_generator` does: reading, noise, passes, clipping, optimizer, averages. Beside them:

- `bare`: the same network in bf16 in a loop as a person would write it, with torch's own algorithms, which are fast and
  not repeatable;
- `diffusers`: that loop around diffusers' DiTTransformer2DModel of the same width and depth, which has a class table
  and a time network in every block (XL/2: 75 million weights more).

FLOPs are two for each multiplication with addition (MAC), of matrix products, convolutions and attention alone; a
training image takes three forward passes. The fraction is of what a product of two matrices of 8192×8192 reaches on
this GPU, now, in the row's precision; it is not the MFU, which is of the datasheet's peak. `compiled fp8` scales
tensors as a whole, by torchao, which `pip install torchao` adds. The first step includes compiling, from nothing.

Run it on a quiet machine with a GPU: `.venv/bin/python benchmarks/gpu.py --out gpu.jsonl`. It takes most of an hour,
compiling above all; rows of the same GPU and torch that --out holds already are not repeated, unless they failed.
`--sizes B --ways bf16,compiled` takes some rows of some sizes. `--processes N` measures N processes, one a device, too.
Prints a Markdown table; the exit status is 1 where a row failed, of which the table says why.
"""

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path.cwd()  # `loop_overhead` goes to the root of the clone
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch  # noqa: E402
from beside.dit import diffusers_dit  # noqa: E402
from loop_overhead import WithoutPictures, bare, latents_of  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from darkroom.device import set_up_device  # noqa: E402
from darkroom.diffusion.scalers import LatentScaler  # noqa: E402
from darkroom.environment import choose_device  # noqa: E402
from darkroom.errors import DarkroomError  # noqa: E402
from darkroom.models.generators.data import LabelledLatents  # noqa: E402
from darkroom.models.generators.dit.config import DiTConfig  # noqa: E402
from darkroom.models.generators.dit.network import DiT  # noqa: E402
from darkroom.models.generators.dit.settings import DiTDiffusion, DiTSampling  # noqa: E402
from darkroom.params.run import Run  # noqa: E402
from darkroom.params.training import Training  # noqa: E402
from darkroom.processes.launch import environments, reporting_errors, supervise, take_device  # noqa: E402
from darkroom.training.loop import remaining_batches  # noqa: E402
from darkroom.training.start import Places, open_training  # noqa: E402

CHANNELS, SIDE, CLASSES, IMAGES = 4, 32, 1000, 4096
SIZES = {"T": (64, 2, 2), "B": (768, 12, 12), "L": (1024, 24, 16), "XL": (1152, 28, 16)}
Step = Callable[[], None]


class Way(NamedTuple):
    """How a row trains: what of Darkroom's settings, and what around which network."""

    precision: str = "bf16"
    compile: bool = False  # the network as a whole
    blocks: bool = False  # compile its blocks, one by one
    loop: str = "darkroom"  # or `bare`, or `diffusers`: in bf16
    tf32: bool = False  # float32 multiplied with 10 bits of the mantissa
    fp8: bool = False  # the layers that see tokens multiply in 8 bits
    checkpointing: bool = False
    muon: bool = False  # in place of AdamW
    repeatable: bool = True  # deterministic algorithms, as all stages take them


WAYS = {
    "fp32": Way("fp32"),
    "tf32": Way("fp32", tf32=True),
    "bf16": Way(),
    "compiled": Way(compile=True),
    "compiled fp32": Way("fp32", compile=True),
    "compiled by block": Way(blocks=True),
    "compiled checkpointed": Way(compile=True, checkpointing=True),
    "compiled not repeatable": Way(compile=True, repeatable=False),
    "compiled fp8": Way(compile=True, fp8=True),
    "compiled muon": Way(compile=True, muon=True),
    "bare": Way(loop="bare"),
    "bare compiled": Way(compile=True, loop="bare"),
    "diffusers": Way(loop="diffusers"),
    "diffusers compiled": Way(compile=True, loop="diffusers"),
}


def peak(kind: str, device: torch.device) -> float:
    """Return the FLOP/s of a product of two square matrices in a precision: `fp32`, `tf32`, `bf16` or `fp8`."""
    side = 8192 if device.type == "cuda" else 512
    torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
    dtype = {"bf16": torch.bfloat16, "fp8": torch.bfloat16}.get(kind, torch.float32)
    one, other = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    if kind == "fp8":
        scale = torch.ones((), device=device)
        one, other = one.to(torch.float8_e4m3fn), other.to(torch.float8_e4m3fn).t()

        def product() -> Tensor:
            return torch._scaled_mm(one, other, scale, scale, out_dtype=torch.bfloat16, use_fast_accum=True)
    else:

        def product() -> Tensor:
            return one @ other

    return 2 * side**3 / timed(product, device, 200)


def peaks_of(device: torch.device) -> dict[str, float]:
    """Return the FLOP/s of each precision that the device multiplies in."""
    able = torch.cuda.get_device_capability() if device.type == "cuda" else (0, 0)
    kinds = ["fp32", "bf16", *["tf32"] * (able >= (8, 0)), *["fp8"] * (able >= (8, 9))]
    return {kind: peak(kind, device) for kind in kinds}


def wait(device: torch.device) -> None:
    """Wait until a GPU has computed what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def timed(step: Callable[[], object], device: torch.device, warm: int) -> float:
    """Return the seconds of a step: the median of five blocks of ten, after some steps that do not count."""
    for _ in range(warm):
        step()
    wait(device)
    times: list[float] = []
    for _ in range(5):  # the same count in all processes
        began = time.perf_counter()
        for _ in range(10):
            step()
        wait(device)
        times.append((time.perf_counter() - began) / 10)
    return statistics.median(times)


def config(size: str) -> DiTConfig:
    """Return the shape of a transformer by its name."""
    width, depth, heads = SIZES[size]
    return DiTConfig(CHANNELS, SIDE, CLASSES, width, depth, heads, 2)


def flops(size: str) -> int:
    """Return the FLOPs of training on an image: of three forward passes."""
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        DiT(config(size))(torch.zeros(1, CHANNELS, SIDE, SIDE), torch.zeros(1), torch.zeros(1, dtype=torch.int64))
    return 3 * counter.get_total_flops()


def to_fp8(network: DiT) -> None:
    """Let the linear layers of the blocks that see tokens multiply in fp8, in place, forward and backward."""
    from torchao.float8 import convert_to_float8_training  # an extra of this benchmark alone

    def fits(module: nn.Module, name: str) -> bool:
        return isinstance(module, nn.Linear) and "modulation" not in name  # which sees one row an image

    convert_to_float8_training(network.blocks, module_filter_fn=fits)


def ours(
    way: Way, size: str, batch: int, rows: LabelledLatents, folder: Path, processes: int
) -> tuple[Step, torch.device]:
    """Return what takes an optimizer step as `darkroom train_generator` does, and where it runs."""
    choose_device("auto")
    if processes > 1:
        take_device("auto")
    set_up_device(2, "auto")
    if not way.repeatable:
        torch.use_deterministic_algorithms(False)
    network = DiT(config(size))
    if way.fp8:
        to_fp8(network)
    scaler = LatentScaler([0.0] * CHANNELS, [1.0] * CHANNELS)
    recipe = WithoutPictures(network, DiTDiffusion(), 0, rows, rows, scaler, None, DiTSampling())
    settings = Training(
        images=10_000_000 // batch * batch,
        batch=batch,
        learning_rate=1e-4,
        precision=way.precision,  # type: ignore[arg-type]
        compile=way.compile,
        tf32=way.tf32,
        optimizer="muon" if way.muon else "adamw",
        ema_decay=0.9999,
        processes=processes,
    )
    run = Run(workers=2, activation_checkpointing=way.checkpointing, grid_every=0)
    trainer = open_training(recipe, settings, run, Places(*(folder / name for name in ("state", "curves", "logs"))))
    if way.blocks:  # as `set_memory_format` compiles the whole
        torch._functorch.config.donated_buffer = False
        torch._inductor.config.fallback_random = True
        for block in network.blocks:
            block.compile(dynamic=False)
    batches = remaining_batches(trainer)
    return lambda: trainer.step(next(batches)), trainer.device


def theirs(way: Way, size: str, batch: int, rows: LabelledLatents) -> tuple[Step, torch.device]:
    """Return what takes an optimizer step of a bare loop, and where it runs."""
    torch.set_num_threads(2)  # as ours
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    width, depth, heads = SIZES[size]
    if way.loop == "bare":
        module: nn.Module = DiT(config(size))
    else:
        module = diffusers_dit(CHANNELS, SIDE, CLASSES, width, depth, heads)  # type: ignore[assignment]

    def network(x: Tensor, times: Tensor, labels: Tensor) -> Tensor:
        if way.loop == "bare":
            found: Tensor = module(x, times, labels)
        else:
            found = module(x, timestep=times, class_labels=labels).sample
        return found

    module.to(device).train()
    if way.compile:
        module.compile(dynamic=False)
    steps = bare(network, list(module.parameters()), rows, CLASSES, batch, "bf16")
    return lambda: next(steps), device


def measure(name: str, size: str, batch: int, processes: int) -> dict[str, Any]:
    """Return a row: seconds of a step, of the first one, and the most bytes of tensors in those that are timed."""
    way = WAYS[name]
    with tempfile.TemporaryDirectory() as folder:
        rows = latents_of(Path(folder) / "latents", (CHANNELS, SIDE, SIDE), IMAGES)
        made = ours(way, size, batch, rows, Path(folder), processes) if way.loop == "darkroom" else None
        step, device = made or theirs(way, size, batch, rows)
        began = time.perf_counter()
        step()
        wait(device)
        first = time.perf_counter() - began
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        seconds = timed(step, device, 5)
        taken = torch.cuda.max_memory_allocated() if device.type == "cuda" else None
        del made, step  # ends the readers: Python, as it ends, would wait a minute for them
    return {"seconds": seconds, "images_s": batch / seconds, "first": first, "memory": taken}


def run_row(args: argparse.Namespace, device: torch.device) -> None:
    """Measure one row here, as one rank or the only one, and write it to --to; an error goes to the parent."""
    with reporting_errors():
        try:
            if args.row == "peak":
                row: dict[str, Any] = peaks_of(device)
            else:
                size, way = args.row.split("/")
                row = measure(way, size, args.batch, args.processes)
        except Exception as error:
            traceback.print_exc()
            raise DarkroomError(f"{type(error).__name__}: {error}".splitlines()[0]) from error
        if os.environ.get("RANK", "0") == "0":
            args.to.write_text(json.dumps(row))


def child(arguments: list[str], processes: int) -> dict[str, Any]:
    """Run this file in a process of its own, or in several as a stage starts them; return the row, or `why` not."""
    with tempfile.TemporaryDirectory() as folder:
        to = Path(folder) / "row.json"
        command = [sys.executable, __file__, *arguments, "--processes", str(processes), "--to", str(to)]
        cold = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/compiled"}  # else it finds what another row compiled
        places = environments(processes) if processes > 1 else [{}]
        try:
            supervise([(command, place | cold) for place in places], processes)
        except DarkroomError as error:
            return {"why": str(error)}
        found: dict[str, Any] = json.loads(to.read_text())
    return found


def line(row: dict[str, Any], peaks: dict[str, float], flops_of: dict[str, int]) -> str:
    """Return a row of the table."""
    way = WAYS[row["way"]]
    kind = "fp8" if way.fp8 else "tf32" if way.tf32 else way.precision
    processes = f", {row['processes']} processes" if row["processes"] > 1 else ""
    name = f"| DiT-{row['size']}/2 | {row['way']}{processes} | {row['batch']} "
    if "why" in row:
        return f"{name}| {row['why'].replace('|', ' ')} | | | | |"
    rate = row["images_s"] * flops_of[row["size"]] / row["processes"]
    fraction = f"{rate / peaks[kind]:.0%} of {kind}" if peaks.get(kind) else ""
    memory = f"{row['memory'] / 2**30:.1f} GiB" if row["memory"] else ""
    cells = f"{row['images_s']:,.0f} | {rate / 1e12:.3g} | {fraction} | {memory} | {row['first']:.0f} s"
    return f"{name}| {cells} |"


def main() -> None:
    """Measure what --out does not hold yet; print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="B,L,XL", help="of the transformer: T (for a try), B, L, XL")
    parser.add_argument("--ways", default=",".join(WAYS), help="rows of each size")
    parser.add_argument("--batch", type=int, default=128, help="images in an optimizer step of a process")
    parser.add_argument("--processes", type=int, default=1, help="also so many, one a device")
    parser.add_argument("--out", type=Path, help="JSON lines, one for each row")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    parser.add_argument("--to", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if args.row:
        run_row(args, device)
        return
    chosen = list(itertools.product(args.sizes.split(","), args.ways.split(",")))
    if unknown := {name for pair in chosen for name in pair} - SIZES.keys() - WAYS.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    out = args.out and HERE / args.out
    here = {"gpu": torch.cuda.get_device_name() if device.type == "cuda" else "no GPU", "torch": torch.__version__}
    kept = [json.loads(row) for row in out.read_text().splitlines()] if out and out.exists() else []
    rows = [row for row in kept if "why" not in row and here.items() <= row.items()]
    peaks = child(["--row", "peak"], 1)
    if "why" in peaks:
        sys.exit(str(peaks["why"]))
    print(f"{here['gpu']}, torch {here['torch']}; TFLOP/s of a product of matrices: ", end="")
    print(", ".join(f"{kind} {value / 1e12:.3g}" for kind, value in peaks.items()))
    flops_of = {size: flops(size) for size in SIZES}
    for size, way in chosen:
        several = args.processes > 1 and WAYS[way].loop == "darkroom"
        for processes in (1, args.processes) if several else (1,):
            key = here | {"size": size, "way": way, "batch": args.batch * processes, "processes": processes}
            if any(key.items() <= row.items() for row in rows):
                continue
            row = key | child(["--row", f"{size}/{way}", "--batch", str(key["batch"])], processes)
            rows.append(row)
            if out:
                with out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            print(line(row, peaks, flops_of), file=sys.stderr)
    print(
        "\n".join(f"DiT-{size}/2: {flops_of[size] / 3e9:.1f} GFLOPs a forward pass." for size in args.sizes.split(","))
    )
    print("\n| network | way | batch | images/s | TFLOP/s a device | of the peak | memory | first step |")
    print("|---|---|---|---|---|---|---|---|")
    rows = [row for row in rows if (row["size"], row["way"]) in chosen]
    for row in rows:
        print(line(row, peaks, flops_of))
    if failed := sum("why" in row for row in rows):
        sys.exit(f"{failed} row{'' if failed == 1 else 's'} failed: see above.")


if __name__ == "__main__":
    main()
