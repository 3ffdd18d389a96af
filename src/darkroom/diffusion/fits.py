"""Whether a network is sampled as it is trained: solver, steps and guidance."""

from collections.abc import Callable, Mapping

from darkroom.diffusion.settings import BOUND_TARGETS, DETERMINISTIC, Diffusion, Sampling, misfit
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


def require_distillable(
    this: str,
    calls: tuple[str, int],
    key: Callable[[str], str],
    sampling: Sampling,
    source: str,
    diffusion: Diffusion,
) -> None:
    """Check that what one network draws can be distilled into few calls.

    Args:
        this: what asks for it, for messages.
        calls: key and value of their number.
        key: gives the key of params.yaml that a setting of the sampling has.
        sampling: how the network draws.
        source: section of its training.
        diffusion: its values.

    Raises:
        DarkroomError: nothing of its objective is distilled, its prediction says nothing at pure noise, its solver adds
            noise or does not begin anew with each call, its steps are not of equal length, or it takes no more of them
            than there will be calls; names the keys.
    """
    if diffusion.objective not in DETERMINISTIC:
        refuse(
            f"{this}, and `{source}.objective` is {diffusion.objective}, of which nothing is distilled: set the latter "
            f"to {' or '.join(DETERMINISTIC)}."
        )
    target = "flow_target" if diffusion.objective == "flow" else "target"
    bound, solvers = BOUND_TARGETS[diffusion.objective], DETERMINISTIC[diffusion.objective]
    if (predicted := getattr(diffusion, target)) not in bound:
        refuse(
            f"{this}, and `{source}.{target}` is {predicted}, which says nothing of data at pure noise, where the "
            f"first call begins: set the latter to {' or '.join(bound)}."
        )
    if sampling.solver not in solvers or sampling.eta:
        noisy = "adds noise on the way, so there is no one way to distil"
        why = "does not begin anew with each call" if sampling.solver == "unipc" else noisy
        if sampling.eta:
            refuse(f"{this}, and `{key('eta')}` is {sampling.eta}, which {noisy}: set the latter to 0.0.")
        known = f"{', '.join(solvers[:-1])} or {solvers[-1]}"
        refuse(f"{this}, and `{key('solver')}` is {sampling.solver}, which {why}: set the latter to {known}.")
    for what in ("spacing", "steps"):
        if (value := getattr(sampling, what)) != "trailing" and isinstance(value, str):
            refuse(
                f"{this}, and `{key(what)}` is {value}: calls take the place of steps of equal length, so set the "
                f"latter to {'trailing' if what == 'spacing' else 'a number'}."
            )
    if calls[1] >= sampling.count:
        refuse(f"`{calls[0]}` is {calls[1]}, no fewer than `{key('steps')}` ({sampling.count}): lower the former.")
