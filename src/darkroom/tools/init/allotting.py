"""How long each training may be, so that the whole DAG ends in time."""

from collections.abc import Callable, Mapping

from darkroom.tools.init.proposal import BATCH

MARGIN = 0.92  # fraction of the time asked for that is used
FEW = 0.4  # fraction of what is enough, below which smaller networks are tried
_STEP = 1.06  # factor by which one training is lengthened at a time
_LEAST = 0.1  # fraction of what would be enough, below which no training goes


def allot(
    ends: Callable[[Mapping[str, float]], float],
    measured: Mapping[str, int],
    enough: Mapping[str, int],
    longest: Mapping[str, int],
    seconds: float,
) -> dict[str, int]:
    """Return the images of each training: as many as fit into the time, in the proportion of what would be enough.

    Begins with the least of each, and lengthens whichever is furthest behind the others while the whole still ends in
    time. Two trainings run side by side, so one that nothing waits for comes out longer than its proportion.

    Args:
        ends: the seconds of the whole DAG, by the factor of each training's length in terms of `measured`.
        measured: images of each training when its time was measured.
        enough: images that each should see.
        longest: images that each must not exceed.
        seconds: the time that there is.

    Returns:
        multiples of each training's batch. Where even the least does not fit, the least.
    """
    lengths = {name: min(_LEAST * enough[name], longest[name]) for name in measured}

    def late(lengths: Mapping[str, float]) -> bool:
        return ends({name: lengths[name] / measured[name] for name in measured}) > seconds

    open_ = set(lengths) if not late(lengths) else set()
    while open_:
        name = min(sorted(open_), key=lambda each: lengths[each] / enough[each])
        longer = {**lengths, name: lengths[name] * _STEP}
        if longer[name] > longest[name] or late(longer):
            open_.discard(name)
        else:
            lengths = longer
    return {name: max(2, int(images / BATCH[name])) * BATCH[name] for name, images in lengths.items()}
