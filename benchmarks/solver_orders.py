"""The error of each solver against its number of steps, on a mixture of two Gaussians whose velocity is known.

p(x_0) = ½ N(-1, 0.25²) + ½ N(0.7, 0.25²), so p_t, the best denoiser E[x_0 | x_t] and the velocity are known in closed
form, and all of a solver's error is its own. Heun with 8,192 steps is the truth; of DPM-Solver++ with equal steps of
log(α / σ), from t = 0.98 to 0.01, itself. Prints a Markdown table with the slope of log error against log steps, from a
least-squares line through the last four numbers of steps, and draws the picture:
`.venv/bin/python benchmarks/solver_orders.py [--out FILE.png]`. All is deterministic; it takes a minute.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src")]

import matplotlib as mpl  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402

from darkroom.diffusion.flow import PATHS, Flow  # noqa: E402
from darkroom.diffusion.samplers import follow, multistep, sample  # noqa: E402
from darkroom.diffusion.settings import Sampling  # noqa: E402
from darkroom.diffusion.types import Denoise, Denoised  # noqa: E402

mpl.use("Agg")
from matplotlib import pyplot  # noqa: E402

CENTRES, WIDTH = (-1.0, 0.7), 0.25
LOGARITHM = "dpm, equal steps of log(α / σ)"
ORDERS = {"euler": 1, "heun": 2, "dpm": 2, LOGARITHM: 2}
TITLES = {"euler": "Euler", "heun": "Heun", "dpm": "DPM-Solver++(2M)", LOGARITHM: "the same, equal in log(α / σ)"}
COLOURS = {"euler": "#1b6ca8", "heun": "#c4552d", "dpm": "#3a8f5c", LOGARITHM: "#8a5fa8"}
FITTED = 4  # numbers of steps that the slope is of, the largest ones
MOST = {LOGARITHM: 256}  # steps: beyond them its error is that of float32, which adds up
ENDS = 0.98, 0.01  # of t, between which log(α / σ) is finite
# From log(α / σ) to t.
INVERSE = {"linear": lambda a: (-a).sigmoid(), "gvp": lambda a: 2 / torch.pi * (-a).exp().atan()}


def best(flow: Flow) -> Denoise:
    """Return the denoiser that knows the density, in float64."""

    def denoise(x: torch.Tensor, t: torch.Tensor, before: torch.Tensor | None) -> Denoised:
        levels = PATHS[flow.path](t.double()[:, None])
        variance = levels.alpha**2 * WIDTH**2 + levels.sigma**2
        weights = torch.stack([-((x - levels.alpha * c) ** 2) / (2 * variance) for c in CENTRES]).softmax(0)
        means = torch.stack([c + levels.alpha * WIDTH**2 / variance * (x - levels.alpha * c) for c in CENTRES])
        x0 = (weights * means).sum(0)
        noise = (x - levels.alpha * x0) / levels.sigma
        return Denoised(x0, levels.alpha_rate * x0 + levels.sigma_rate * noise)

    return denoise


def errors(flow: Flow, solver: str, steps: list[int], truth_steps: int) -> list[float]:
    """Return the mean absolute error of where 80 noises are carried to, for each number of steps."""
    noise = torch.linspace(-2, 2, 80, dtype=torch.float64)[:, None]

    def carried(name: str, count: int) -> torch.Tensor:
        if name != LOGARITHM:
            return sample(best(flow), noise, flow, Sampling(solver=name, steps=count))
        alpha, sigma = flow.levels(torch.tensor(ENDS))
        first, last = (alpha / sigma).log().tolist()
        times = INVERSE[flow.path](torch.linspace(first, last, count + 1, dtype=torch.float64))
        return follow(multistep(times[:-1], *flow.levels(times)), best(flow), noise)

    truth = carried(solver if solver == LOGARITHM else "heun", truth_steps)
    return [float((carried(solver, count) - truth).abs().mean()) for count in steps]


def slope(steps: list[int], found: list[float]) -> float:
    """Return the order: minus the slope of a line through the logarithms of the last points."""
    return -float(np.polyfit(np.log(steps[-FITTED:]), np.log(found[-FITTED:]), 1)[0])


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="docs/solver-orders.png", metavar="FILE.png", help="the picture; %(default)s")
    parser.add_argument("--doublings", type=int, default=10, help="numbers of steps: 4, 8, …; %(default)s of them")
    parser.add_argument("--truth", type=int, default=8192, help="steps of the truth; %(default)s")
    options = parser.parse_args()
    steps = [4 * 2**power for power in range(options.doublings)]
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4.4), sharey=True, layout="constrained")
    print(f"| path | solver | {' | '.join(f'{count} steps' for count in steps)} | order |")
    print(f"|---|---|{'---|' * (len(steps) + 1)}")
    for axis, path in zip(axes, ("linear", "gvp"), strict=True):
        for solver, order in ORDERS.items():
            taken = [count for count in steps if count <= MOST.get(solver, steps[-1])]
            found = errors(Flow(path=path), solver, taken, options.truth)
            measured = slope(taken, found)
            cells = [f"{each:.2g}" for each in found] + [""] * (len(steps) - len(taken))
            print(f"| {path} | {solver} | {' | '.join(cells)} | {measured:.2f} |")
            colour = COLOURS[solver]
            axis.loglog(taken, found, "o-", color=colour, markersize=4, label=f"{TITLES[solver]}: {measured:.2f}")
            guide = [found[-1] * (taken[-1] / count) ** order for count in taken]
            axis.loglog(taken, guide, ":", color=colour, linewidth=1)
        axis.set(title=f"path {path}", xlabel="steps")
        axis.set_xticks(steps, [str(count) for count in steps])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        axis.legend(title="slope; dotted: order 1 and 2", frameon=False)
    axes[0].set_ylabel("mean absolute error")
    figure.savefig(options.out, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
