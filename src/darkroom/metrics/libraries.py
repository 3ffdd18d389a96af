"""The versions of what computes scores, for their cards."""

from importlib.metadata import version

LIBRARIES = ("numpy", "torch", "torch-fidelity", "torchmetrics")


def library_versions() -> dict[str, str]:
    """Return the versions of what computes scores. The build behind a `+` (cpu, cu130) names a device: left out."""
    return {name: version(name).partition("+")[0] for name in LIBRARIES}
