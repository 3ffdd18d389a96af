"""When the last of several stages ends: one after another, or as many side by side as the cores allow."""

import heapq
from collections.abc import Mapping, Set
from dataclasses import dataclass


@dataclass(frozen=True)
class Job:
    """A stage as an engine runs it."""

    seconds: float  # from its start to its end, the engine's own part included
    threads: int  # cores that it takes
    gpu: bool = False  # whether it takes the GPU


def side_by_side(jobs: Mapping[str, Job], needs: Mapping[str, Set[str]], cores: int) -> float:
    """Return the seconds in which all jobs have ended, see `ends`."""
    return max(ends(jobs, needs, cores).values(), default=0.0)


def ends(jobs: Mapping[str, Job], needs: Mapping[str, Set[str]], cores: int) -> dict[str, float]:
    """Return when jobs end that start as soon as those they need have ended and cores, and the GPU, are free.

    Among several that may start, the one with the longest way to the end goes first: list scheduling, as
    `snakemake --cores N` comes near to. A job that wants more cores than there are gets all.

    Names in `needs` that are no jobs are done already.
    """
    waits = {name: set(needs.get(name, ())) & jobs.keys() for name in jobs}
    way = _ways(jobs, waits)
    ready = [name for name, needed in waits.items() if not needed]
    running: list[tuple[float, str]] = []
    found: dict[str, float] = {}
    now, free, gpus = 0.0, cores, 1
    while ready or running:
        for name in sorted(ready, key=way.__getitem__, reverse=True):
            wanted = min(jobs[name].threads, cores)
            if wanted <= free and jobs[name].gpu <= gpus:
                ready.remove(name)
                free, gpus = free - wanted, gpus - jobs[name].gpu
                heapq.heappush(running, (now + jobs[name].seconds, name))
        now, done = heapq.heappop(running)
        found[done] = now
        free, gpus = free + min(jobs[done].threads, cores), gpus + jobs[done].gpu
        for name, needed in waits.items():
            if done in needed:
                needed.remove(done)
                ready += [] if needed else [name]
    return found


def _ways(jobs: Mapping[str, Job], needs: Mapping[str, Set[str]]) -> dict[str, float]:
    """Return the seconds from the start of each job to the end of all that follow from it, on cores without number."""
    found: dict[str, float] = {}

    def way(name: str) -> float:
        if name not in found:
            after = [way(other) for other, needed in needs.items() if name in needed]
            found[name] = jobs[name].seconds + max(after, default=0.0)
        return found[name]

    return {name: way(name) for name in jobs}
