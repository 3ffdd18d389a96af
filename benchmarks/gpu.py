"""Measure a GPU in nine minutes: diffusion transformers in training and sampling, and a small DAG through both engines.

DiT-B/2, L/2 and XL/2 (Peebles and Xie, 2023, arXiv 2212.09748, table 1) train on latents of 4×32×32, those of images of
256 pixels, in shards of the stage's own format. Each row runs in its own process, which starts with an empty cache of
compiled code. A row of training takes optimizer steps as `darkroom train_generator` does: reading, noise, passes,
clipping, optimizer, averages. The other rows:

- `bare`: the same network in bf16 in a plain loop, with torch's default algorithms, which are not repeatable;
- `diffusers`: that loop around diffusers' DiTTransformer2DModel of the same width and depth, which has a class table
  and a time network in every block (XL/2: 75 million weights more);
- `sampling`: 50 steps of Euler's method with guidance, in bf16, half as many images at a time, latents only.

FLOPs are two for each multiplication with addition (MAC), of matrix products, convolutions and attention alone; a
training image takes three forward passes, a sampled one a hundred. The fraction is of what a product of two matrices of
8192×8192 reaches on this GPU in the row's precision; it is not the MFU, which is of the datasheet's peak.

Run it on a quiet machine with a GPU: `.venv/bin/python benchmarks/gpu.py --out gpu.json`. `--rows all --minutes 90`
takes all ways of all sizes, `--rows B/fp32,XL/bf16` those two rows; `dag` is benchmarks/engines.py. --out is written
after each row; rows that it already has for the same GPU and torch are not repeated unless they failed. `--processes N`
also measures N processes, one a device. It prints a Markdown table and exits with 1 if a row failed.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path.cwd()  # `loop_overhead` goes to the root of the clone
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch  # noqa: E402
from loop_overhead import WithoutPictures, bare, latents_of  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from darkroom.device import set_up_device  # noqa: E402
from darkroom.diffusion.objectives import objective_of  # noqa: E402
from darkroom.diffusion.scalers import LatentScaler  # noqa: E402
from darkroom.environment import choose_device  # noqa: E402
from darkroom.errors import DarkroomError  # noqa: E402
from darkroom.models.generators.data import LabelledLatents  # noqa: E402
from darkroom.models.generators.dit.config import DiTConfig  # noqa: E402
from darkroom.models.generators.dit.network import DiT  # noqa: E402
from darkroom.models.generators.dit.sample import DiTSampler  # noqa: E402
from darkroom.models.generators.dit.settings import DiTDiffusion, DiTSampling  # noqa: E402
from darkroom.params.run import Run  # noqa: E402
from darkroom.params.training import Training  # noqa: E402
from darkroom.processes.launch import environments, reporting_errors, supervise, take_device  # noqa: E402
from darkroom.training.loop import remaining_batches  # noqa: E402
from darkroom.training.precision import run_in  # noqa: E402
from darkroom.training.start import OutputPaths, open_training  # noqa: E402

CHANNELS, SIDE, CLASSES, IMAGES, STEPS = 4, 32, 1000, 4096, 50
SIZES = {"T": (64, 2, 2), "B": (768, 12, 12), "L": (1024, 24, 16), "XL": (1152, 28, 16)}  # T: for a try
Step = Callable[[], object]


class Way(NamedTuple):
    """What a row runs: Darkroom's settings, and the loop around the network."""

    precision: str = "bf16"
    compile: bool = False  # the network as a whole
    blocks: bool = False  # compile its blocks, one by one
    loop: str = "darkroom"  # or, in bf16, `bare`, `diffusers` or `sampling`
    tf32: bool = False  # float32 multiplied with 10 bits of the mantissa
    checkpointing: bool = False
    muon: bool = False  # in place of AdamW
    repeatable: bool = True  # deterministic algorithms, as in all stages


WAYS = {
    "fp32": Way("fp32"),
    "tf32": Way("fp32", tf32=True),
    "bf16": Way(),
    "compiled": Way(compile=True),
    "compiled fp32": Way("fp32", compile=True),
    "compiled by block": Way(blocks=True),
    "compiled checkpointed": Way(compile=True, checkpointing=True),
    "compiled not repeatable": Way(compile=True, repeatable=False),
    "compiled muon": Way(compile=True, muon=True),
    "bare": Way(loop="bare"),
    "bare compiled": Way(compile=True, loop="bare"),
    "diffusers": Way(loop="diffusers"),
    "diffusers compiled": Way(compile=True, loop="diffusers"),
    "sampling": Way(loop="sampling"),
    "sampling compiled": Way(compile=True, loop="sampling"),
}
ALL = [f"{size}/{way}" for size in ("B", "L", "XL") for way in WAYS] + ["dag"]
SHORT = "B/bf16,B/compiled,B/bare compiled,B/diffusers,B/sampling,L/compiled by block,XL/compiled by block,dag"
SHORT += ",B/sampling compiled,L/compiled,B/bare,B/fp32"  # as far as the time goes
RESERVED = {"dag": 180}  # seconds that the rows before leave


def peaks(device: torch.device) -> dict[str, float]:
    """Return the FLOP/s of a product of two square matrices in each precision that the device multiplies in."""
    rates = {}
    side = 8192 if device.type == "cuda" else 512
    for kind, dtype in {"fp32": torch.float32, "bf16": torch.bfloat16, "tf32": torch.float32}.items():
        if kind != "tf32" or (device.type == "cuda" and torch.cuda.get_device_capability() >= (8, 0)):
            torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
            one, other = torch.randn(2, side, side, device=device, dtype=dtype)
            rates[kind] = 2 * side**3 / timed(partial(torch.matmul, one, other), device, 50, 10)
    return rates


def wait(device: torch.device) -> None:
    """Wait until a GPU has computed what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def timed(step: Step, device: torch.device, warm: int, turn: int) -> float:
    """Return the seconds of a step: the median of five turns, after some steps that do not count."""
    for _ in range(warm):
        step()
    wait(device)
    times: list[float] = []
    for _ in range(5):  # the same count in all processes
        began = time.perf_counter()
        for _ in range(turn):
            step()
        wait(device)
        times.append((time.perf_counter() - began) / turn)
    return statistics.median(times)


def config(size: str) -> DiTConfig:
    """Return the shape of a transformer by its name."""
    width, depth, heads = SIZES[size]
    return DiTConfig(CHANNELS, SIDE, CLASSES, width, depth, heads, 2)


def flops(size: str) -> int:
    """Return the FLOPs of a forward pass of one image."""
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        DiT(config(size))(torch.zeros(1, CHANNELS, SIDE, SIDE), torch.zeros(1), torch.zeros(1, dtype=torch.int64))
    return counter.get_total_flops()


def ours(
    way: Way, size: str, batch: int, rows: LabelledLatents, folder: Path, processes: int
) -> tuple[Step, torch.device]:
    """Return what takes an optimizer step as `darkroom train_generator` does, and its device."""
    choose_device("auto")
    if processes > 1:
        take_device("auto")
    set_up_device(2, "auto")
    if not way.repeatable:
        torch.use_deterministic_algorithms(False)
    network = DiT(config(size))
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
    trainer = open_training(
        recipe, settings, run, OutputPaths(*(folder / name for name in ("state", "curves", "logs")))
    )
    if way.blocks:  # as `set_memory_format` compiles the whole
        torch._functorch.config.donated_buffer = False
        torch._inductor.config.fallback_random = True
        for block in network.blocks:
            block.compile(dynamic=False)
    batches = remaining_batches(trainer)
    return lambda: trainer.step(next(batches)), trainer.device


def theirs(way: Way, size: str, batch: int, rows: LabelledLatents) -> tuple[Step, torch.device]:
    """Return what takes an optimizer step of a bare loop, and its device."""
    torch.set_num_threads(2)  # as ours
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    width, depth, heads = SIZES[size]
    if way.loop == "bare":
        network = module = DiT(config(size))
    else:
        from beside.dit import diffusers_dit  # diffusers, which takes seconds to import

        module = diffusers_dit(CHANNELS, SIDE, CLASSES, width, depth, heads)

        def network(x: Tensor, times: Tensor, labels: Tensor) -> Tensor:
            return module(x, timestep=times, class_labels=labels).sample

    module.to(device).train()
    if way.compile:
        module.compile(dynamic=False)
    steps = bare(network, list(module.parameters()), rows, CLASSES, batch, "bf16")
    return lambda: next(steps), device


def sampling(way: Way, size: str, batch: int) -> tuple[Step, torch.device]:
    """Return what samples a batch of latents as `darkroom sample_generator` does, and its device."""
    choose_device("auto")
    device = set_up_device(2, "auto")
    network = DiT(config(size)).to(device).eval()
    run_in(network, way.precision, way.compile, device)
    scaler = LatentScaler([0.0] * CHANNELS, [1.0] * CHANNELS)
    sampler = DiTSampler(network, objective_of(DiTDiffusion(), 1000), scaler, None)  # type: ignore[arg-type]
    noise = torch.randn(batch, CHANNELS, SIDE, SIDE, device=device)
    labels = torch.arange(batch, device=device)
    return lambda: sampler.latents(noise, labels, range(batch), DiTSampling(steps=STEPS, guidance=1.5)), device


def measure(name: str, size: str, batch: int, processes: int) -> dict[str, Any]:
    """Return a row: seconds of a step and of the first one, and the peak of the tensors' bytes in the timed steps."""
    way, training = WAYS[name], None
    samples = way.loop == "sampling"
    with tempfile.TemporaryDirectory() as folder:
        if samples:
            step, device = sampling(way, size, batch)
        else:
            rows = latents_of(Path(folder) / "latents", (CHANNELS, SIDE, SIDE), IMAGES)
            training = ours(way, size, batch, rows, Path(folder), processes) if way.loop == "darkroom" else None
            step, device = training or theirs(way, size, batch, rows)
        began = time.perf_counter()
        step()
        wait(device)
        first = time.perf_counter() - began
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        seconds = timed(step, device, *((0, 1) if samples else (5, 10)))
        memory = torch.cuda.max_memory_allocated() if device.type == "cuda" else None
        del training, step  # ends the readers: else Python waits a minute for them
    return {"seconds": seconds, "images_s": batch / seconds, "first": first, "memory": memory}


def run_row(args: argparse.Namespace, device: torch.device) -> None:
    """Measure one row here, as one rank or the only one, and write it to --to; an error goes to the parent."""
    signal.alarm(args.limit)  # ends this process
    with reporting_errors():
        try:
            if args.row == "peak":
                row: dict[str, Any] = peaks(device)
            else:
                size, way = args.row.split("/")
                row = measure(way, size, args.batch, args.processes)
        except Exception as error:
            traceback.print_exc()
            raise DarkroomError(f"{type(error).__name__}: {error}".splitlines()[0]) from error
        if os.environ.get("RANK", "0") == "0":
            args.to.write_text(json.dumps(row))


def child(row: str, batch: int, processes: int, limit: int) -> dict[str, Any]:
    """Run this file in its own process, or in several as a stage starts them; return the row, or its `error`."""
    with tempfile.TemporaryDirectory() as folder:
        to = Path(folder) / "row.json"
        options = {"row": row, "batch": batch, "processes": processes, "limit": limit, "to": to}
        command = [sys.executable, __file__, *(f"--{name}={value}" for name, value in options.items())]
        cold = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/compiled"}  # else it finds what another row compiled
        places = environments(processes) if processes > 1 else [{}]
        try:
            supervise([(command, place | cold) for place in places], processes)
        except DarkroomError as error:
            return {"error": f"took more than {limit} s" if "SIGALRM" in str(error) else str(error)}
        measured: dict[str, Any] = json.loads(to.read_text())
    return measured


def engines(limit: int) -> dict[str, Any]:
    """Run benchmarks/engines.py, which also prints its table; return its result, or its `error`."""
    program = Path(__file__).with_name("engines.py")
    with tempfile.TemporaryDirectory() as folder:
        to = Path(folder) / "engines.json"
        subprocess.run([sys.executable, program, f"--seconds={limit}", f"--out={to}"], check=False)
        return json.loads(to.read_text()) if to.exists() else {"error": "engines.py failed"}


def line(row: dict[str, Any], result: dict[str, Any]) -> str:
    """Return a row of the table."""
    size, name = row["row"].split("/")
    way = WAYS[name]
    processes = f", {row['processes']} processes" if row["processes"] > 1 else ""
    start = f"| DiT-{size}/2 | {name}{processes} | {row['batch']} "
    if "error" in row:
        return f"{start}| {row['error'].replace('|', ' ')} | | | | |"
    passes = 2 * STEPS if way.loop == "sampling" else 3
    rate = row["images_s"] * passes * result["forward_flops"][size] / row["processes"]
    kind = "tf32" if way.tf32 else way.precision
    fraction = f"{rate / result['peaks'][kind]:.0%} of {kind}" if kind in result["peaks"] else ""
    memory = f"{row['memory'] / 2**30:.1f} GiB" if row["memory"] else ""
    cells = f"{row['images_s']:,.0f} | {rate / 1e12:.3g} | {fraction} | {memory} | {row['first']:.0f} s"
    return f"{start}| {cells} |"


def parse() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=SHORT, help="SIZE/WAY, … or dag; all: all ways of all sizes")
    parser.add_argument("--minutes", type=float, default=9, help="limit of all rows")
    parser.add_argument("--limit", type=int, default=120, help="seconds: limit of one row")
    parser.add_argument("--batch", type=int, default=128, help="images in an optimizer step of a process")
    parser.add_argument("--processes", type=int, default=1, help="also so many, one a device")
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    parser.add_argument("--to", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.rows = ALL if args.rows == "all" else args.rows.split(",")
    known = {f"{size}/{way}" for size in SIZES for way in WAYS} | {"dag"}
    if unknown := set(args.rows) - known:
        parser.error(f"unknown rows: {', '.join(sorted(unknown))}")
    return args


def main() -> None:
    """Measure what --out does not have yet; print the table."""
    args = parse()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if args.row:
        run_row(args, device)
        return
    deadline = time.monotonic() + 60 * args.minutes
    out = args.out and HERE / args.out
    here = {"gpu": torch.cuda.get_device_name() if device.type == "cuda" else "no GPU", "torch": torch.__version__}
    result: dict[str, Any] = {**here, "rows": []}
    if out and out.exists() and here.items() <= (before := json.loads(out.read_text())).items():
        result = before | {"rows": [row for row in before["rows"] if "error" not in row]}
    result["forward_flops"] = {size: flops(size) for size in SIZES}
    result["peaks"] = child("peak", args.batch, 1, args.limit)
    if "error" in result["peaks"]:
        sys.exit(str(result["peaks"]["error"]))
    chosen: list[dict[str, Any]] = []
    for place, name in enumerate(args.rows):
        for processes in (1, args.processes)[: 1 + (args.processes > 1 and name != "dag")]:
            left = int(deadline - time.monotonic()) - sum(RESERVED.get(other, 0) for other in args.rows[place + 1 :])
            if name == "dag":
                result["dag"] = engines(left - 30) if left > 60 else {"error": "not run: no time left"}
            else:
                batch = args.batch // 2 if "sampling" in name else args.batch * processes
                row = {"row": name, "batch": batch, "processes": processes}
                known = [other for other in result["rows"] if row.items() <= other.items()]
                if not known:
                    limit = min(args.limit, left)
                    row |= child(name, batch, processes, limit) if limit > 15 else {"error": "not run: no time left"}
                    result["rows"].append(row)
                chosen += known or [row]
                print(line(chosen[-1], result), file=sys.stderr, flush=True)
            if out:
                out.with_suffix(".tmp").write_text(json.dumps(result, indent=1))
                out.with_suffix(".tmp").replace(out)
    rates = ", ".join(f"{kind} {value / 1e12:.3g}" for kind, value in result["peaks"].items())
    print(f"\n{result['gpu']}, torch {result['torch']}; TFLOP/s of a product of matrices: {rates}")
    print("\n| network | way | batch | images/s | TFLOP/s a device | of the peak | memory | first step |")
    print("|---|---|---|---|---|---|---|---|")
    for row in chosen:
        print(line(row, result))
    sys.exit(any("error" in row for row in chosen) or "error" in result.get("dag", {}))


if __name__ == "__main__":
    main()
