"""Whether a network is sampled as it is trained: solver, steps and guidance."""

# No effect on any output: validates

from collections.abc import Callable, Mapping

from darkroom.diffusion.settings import Diffusion, Sampling, misfit
from darkroom.params.fits import refuse, require_dropout


def require_sampling(
    key: Callable[[str], str],
    sampling: Sampling,
    source: str,
    diffusion: Diffusion,
    timesteps: tuple[str, int],
    dropouts: Mapping[str, float],
) -> None:
    """Check one network.

    Args:
        key: gives the key of params.yaml that a setting of the sampling has.
        sampling: how it is sampled.
        source: section of the training.
        diffusion: its values.
        timesteps: key and value of the length of the noise schedule.
        dropouts: keys and values of the fractions of conditions dropped while training.

    Raises:
        DarkroomError: the first misfit; names its key and what to set it to.
    """
    if found := misfit(sampling, diffusion, timesteps[1]):
        other = timesteps[0] if found.source == "timesteps" else f"{source}.{found.source}"
        refuse(f"`{key(found.key)}` is {found.value}, and `{other}` is {found.bound}: {found.remedy}.")
    for name, dropout in dropouts.items():
        require_dropout(key("guidance"), sampling.guidance, name, dropout)
