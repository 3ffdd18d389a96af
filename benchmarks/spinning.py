"""What it costs that threads wait for each other by spinning: a training alone, and beside other work.

    PYTHONPATH=src python benchmarks/spinning.py [--network kl --precision bf16 --threads 2 --own] [--neighbours 0 1 2]

Updates of the default DiT (width 128, depth 4, 64 latents of 4x8x8) or of the tokenizer that `darkroom init` takes for
32 pixels (two levels of 64, 16 images), with AdamW, in a process of its own for each policy, the policies in turns, so
that whatever else the machine does falls on all of them alike. Printed are the medians over the rounds: images/s, CPU
seconds, and images/s as a fraction of those of the library's own default in the same round; with --own only what
Darkroom sets. A neighbour is a process that counts. The weights after the updates must be the same under each policy.
"""

import argparse
import hashlib
import os
import resource
import subprocess
import sys
import time
from statistics import median
from typing import Any

UPDATES = 40
DARKROOM = "what darkroom sets"
POLICIES: dict[str, dict[str, str]] = {
    "libgomp's default (300,000 turns)": {"GOMP_SPINCOUNT": "300000"},
    "GOMP_SPINCOUNT=30000": {"GOMP_SPINCOUNT": "30000"},
    "GOMP_SPINCOUNT=10000": {"GOMP_SPINCOUNT": "10000"},
    "GOMP_SPINCOUNT=3000": {"GOMP_SPINCOUNT": "3000"},
    "GOMP_SPINCOUNT=1000": {"GOMP_SPINCOUNT": "1000"},
    "OMP_WAIT_POLICY=PASSIVE": {"OMP_WAIT_POLICY": "PASSIVE"},
    DARKROOM: {},
}


def training(network: str, precision: str, threads: int) -> None:
    """Train, and print images/s, CPU seconds and the hash of the weights."""
    from darkroom.runner import set_threads

    set_threads(threads)
    import torch

    from darkroom.device import set_up_device

    set_up_device(threads, "cpu")
    torch.manual_seed(0)
    if network == "dit":
        from darkroom.models.generators.dit.config import DiTConfig
        from darkroom.models.generators.dit.network import DiT

        model: Any = DiT(DiTConfig(4, 8, 10, 128, 4, 4, 2, 4.0))
        x, noise = torch.randn(2, batch := 64, 4, 8, 8)
        times, labels = torch.rand(batch), torch.randint(0, 10, (batch,))
        t = times[:, None, None, None]
        target, given = noise - x, ((1 - t) * x + t * noise, times, labels)
    else:
        from diffusers import AutoencoderKL

        folded = 16  # RGBA in patches of 2 x 2
        kinds = {"down_block_types": ["DownEncoderBlock2D"] * 2, "up_block_types": ["UpDecoderBlock2D"] * 2}
        model = AutoencoderKL(folded, folded, **kinds, block_out_channels=(64, 64), norm_num_groups=16)
        target = torch.randn(batch := 16, folded, 16, 16)
        given = (target,)  # type: ignore[assignment]

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    began = cpu = 0.0
    for update in range(UPDATES + 3):
        if update == 3:  # the first ones allocate
            began, cpu = time.perf_counter(), _cpu()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            predicted = model(*given)
            loss = (getattr(predicted, "sample", predicted) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    rate, cpu = UPDATES * batch / (time.perf_counter() - began), _cpu() - cpu
    weights = b"".join(value.detach().numpy().tobytes() for value in model.parameters())
    print(rate, cpu, hashlib.sha256(weights).hexdigest())


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(policy: dict[str, str], words: list[str]) -> tuple[float, float, str]:
    """Return images/s, CPU seconds and the hash of the weights of a training under a policy."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))}
    command = [sys.executable, __file__, "--train", *words]
    done = subprocess.run(command, env=kept | policy, check=True, capture_output=True, text=True).stdout.split()
    return float(done[0]), float(done[1]), done[2]


def main() -> None:
    """Print a table for each number of neighbours."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--network", choices=["dit", "kl"], default="dit")
    options.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--own", action="store_true", help="only what Darkroom sets")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--neighbours", type=int, nargs="+", default=[0, 1])
    options.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.train:
        training(chosen.network, chosen.precision, chosen.threads)
        return
    words = ["--network", chosen.network, "--precision", chosen.precision, "--threads", str(chosen.threads)]
    policies = {DARKROOM: POLICIES[DARKROOM]} if chosen.own else POLICIES
    hashes = set()
    for count in chosen.neighbours:
        neighbours = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
        try:
            rounds = [{name: measure(policy, words) for name, policy in policies.items()} for _ in range(chosen.rounds)]
        finally:
            for neighbour in neighbours:
                neighbour.kill()
                neighbour.wait()
        print(f"\n{count} neighbours, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
        print("| policy | images/s | CPU, s | of the rate of the first |\n|---|---|---|---|")
        first = next(iter(policies))
        for name in policies:
            found = [each[name] for each in rounds]
            ratio = median(each[name][0] / each[first][0] for each in rounds)
            print(f"| {name} | {median(f[0] for f in found):.0f} | {median(f[1] for f in found):.2f} | {ratio:.2f} |")
            hashes |= {f[2] for f in found}
    print("\nThe weights are the same under each policy." if len(hashes) == 1 else "\nTHE WEIGHTS DIFFER.")


if __name__ == "__main__":
    main()
