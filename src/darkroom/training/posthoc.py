"""Averaged weights of any width, after the training, from snapshots of a few widths.

Karras et al., 2024 (arXiv 2312.02696), section 3.2 and its appendix: the profile that is wanted is approached by a sum
of the profiles that were kept, by least squares. Here the coefficients sum to 1 exactly, so that what is common to all
weights of the training is returned as it is; without this the error of a wide average is several times larger (see
docs/ema.md).
"""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

from darkroom.artifacts.manifest import NAME, ArtifactError, open_artifact
from darkroom.errors import DarkroomError
from darkroom.training.power import exponent, product

Numbers = NDArray[np.float64]

# || found - wanted || / || wanted ||. Where the noise of the updates is independent this is the error of the rebuilt
# weights as a share of the noise that the wanted average itself leaves: at 0.1 a tenth of it, hardly to be measured.
MAX_RESIDUAL = 0.1
# Sum of the coefficients' sizes. Snapshots are float32, so the error that their rounding leaves is at most this many
# times 2^-24: at 1000 it is 6e-5 of a weight, an eighth of what float16 rounds away.
MAX_GAIN = 1000.0


def coefficients(times: Numbers, gammas: Numbers, time: float, gamma: float) -> tuple[Numbers, float]:
    """Return the coefficients of kept profiles whose sum is nearest to a wanted one, and the relative residual.

    Minimises || Σ x_i p_i - q ||² under Σ x_i = 1, by its normal equations with one multiplier, in float64:
    Σ_j <p_i, p_j> x_j + λ = <p_i, q>.

    Args:
        times: of the kept profiles, (N,), in any unit.
        gammas: their exponents, (N,).
        time: of the wanted profile, in the same unit.
        gamma: its exponent.

    Returns:
        (N,) and || Σ x_i p_i - q || / || q ||.
    """
    count = len(times)
    gram = product(times[:, None], gammas[:, None], times, gammas)  # (N, N)
    right = product(times, gammas, time, gamma)  # (N,)
    norm = float(product(time, gamma, time, gamma))
    # In units in which every kept profile has norm 1: short ones are large.
    scale = 1 / np.sqrt(np.diag(gram))
    one = scale / scale.max()
    system = np.zeros((count + 1, count + 1))
    system[:count, :count] = gram * scale[:, None] * scale
    system[:count, count] = system[count, :count] = one
    # Least squares again, as widths that are nearly the same make the system singular.
    solution = np.linalg.lstsq(system, np.append(right * scale, 1 / scale.max()), rcond=None)[0]
    found = solution[:count] * scale
    squared = (found @ gram @ found - 2 * found @ right + norm) / norm
    return found, float(np.sqrt(max(0.0, squared)))


def reconstruct(folder: Path, sigma_rel: float, images: int | None = None) -> dict[str, Tensor]:
    """Return the weights of a module averaged with a relative width, from the snapshots of its training.

    Args:
        folder: what `training.profiles.export` wrote, say `models/generator/profiles`.
        sigma_rel: the width wanted, as a share of the training's length.
        images: of the time at which the average ends; None: the end of the training.

    Returns:
        Tensors by name with the dtypes of the module; summed in float64. Buffers are those of the last snapshot used.

    Raises:
        DarkroomError: there are no snapshots, one is damaged, or they cannot express this width.
    """
    if not (folder / NAME).is_file():
        raise DarkroomError(
            f"sigma_rel is {sigma_rel}, but {folder} is missing: the training kept no averages to rebuild it from. "
            "Set ema_profiles of the training, say to 0.05 and 0.1, and train again, or leave sigma_rel empty."
        )
    manifest = open_artifact(folder, "profiles")
    last = manifest["snapshots"][-1] if images is None else images
    kept = [(at, width) for at in manifest["snapshots"] if at <= last for width in manifest["widths"]]
    if not kept:
        raise ArtifactError(
            f"{folder} has no snapshot before image {last:,}: the first is at {manifest['snapshots'][0]:,}."
        )
    times = np.array([at for at, _ in kept], dtype=np.float64)
    gammas = np.array([exponent(width) for _, width in kept])
    shares, residual = coefficients(times, gammas, last, exponent(sigma_rel))
    gain = float(np.abs(shares).sum())
    if residual > MAX_RESIDUAL or gain > MAX_GAIN:
        raise DarkroomError(
            f"sigma_rel {sigma_rel} cannot be rebuilt from {folder}, which holds {manifest['widths']} at "
            f"{len(manifest['snapshots'])} places: the relative residual is {residual:.2g} (at most {MAX_RESIDUAL:g}) "
            f"and the sum of the coefficients' sizes {gain:.3g} (at most {MAX_GAIN:g}). Take a width nearer to the "
            "kept ones, or train with more ema_profiles or ema_snapshots."
        )
    sums: dict[str, Tensor] = {}
    for (at, width), share in zip(kept, shares.tolist(), strict=True):
        weights = load_file(folder / f"images-{at:012d}" / f"{width!r}.safetensors")
        for name in weights.keys() - set(manifest["copied"]):
            sums.setdefault(name, torch.zeros_like(weights[name], dtype=torch.float64)).add_(
                weights[name].double(), alpha=share
            )
    return {name: sums[name].to(value.dtype) if name in sums else value for name, value in weights.items()}
