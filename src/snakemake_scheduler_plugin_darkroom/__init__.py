"""Snakemake's scheduler of a run (`scheduler: darkroom` in profiles/default): the longest chain of stages never waits.

Snakemake's own schedulers start whatever fits. A training of two threads needs two free cores at the same time, and
would wait while stages of one thread take each core that becomes free.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from snakemake_interface_scheduler_plugins.base import SchedulerBase

_SHORT = 15.0  # seconds that a core may be kept free in any case, since expected times are rough


class Scheduler(SchedulerBase):
    """Starts jobs in the order of their priorities, and keeps cores free for the first one that does not fit.

    A job has as `priority` the expected seconds of the longest chain of jobs that begins with it, and as resource
    `seconds` its own; among equal priorities the longest job is first. A later job may still start if it is expected to
    end, or to leave enough resources, before the first one can start; or if the wait is longer than `_SHORT` and than
    half of its time. A job whose inputs are ready within `_SHORT` counts as the first one, too. Snakemake selects again
    when the expected wait is over, so a wrong expectation keeps no core idle for long.
    """

    def __post_init__(self) -> None:
        self._started: dict[Any, float] = {}  # when, by running job
        self._timer, self._due = threading.Timer(0, lambda: None), 0.0  # the next selection by time, and when
        self._full = True  # whether `--max-jobs-per-timespan` may be reached, until a selection leaves a place

    def select_jobs(
        self,
        selectable_jobs: Iterable[Any],
        remaining_jobs: Iterable[Any],
        available_resources: Mapping[str, Any],
        input_sizes: Mapping[Any, int],
    ) -> list[Any] | None:
        """Return the jobs that start now; None for groups of jobs, which Snakemake's own scheduler then selects."""
        now, ready, remaining = time.monotonic(), set(selectable_jobs), set(remaining_jobs)
        engine, unfinished = self.dag.workflow.scheduler, set(self.dag.needrun_jobs())
        engine._schedule_reevalutation = self._reevaluate
        if not ready <= remaining:
            return None
        self._started = {job: self._started.get(job, now) for job in engine.running}
        free = Counter({name: amount for name, amount in available_resources.items() if isinstance(amount, int)})
        chosen: list[Any] = []
        first, wait, later = None, 0.0, free  # the first job that must wait, when it can start, what is free then
        keeps = False
        for job in sorted(remaining, key=lambda job: (-job.priority, -_seconds(job), str(job))):
            needs = _needs(job, free)
            if job not in ready or not needs <= free:
                needed = unfinished & set(self.dag.job_dependencies(job))
                if first is None and self._started.keys() >= needed and (needed or job in ready):
                    seconds, then = self._wait(job, needed, free, now)
                    if job in ready or seconds <= _SHORT:
                        first, wait, later = job, seconds, then
                continue
            if first is not None and self._started:
                ends = _seconds(job) <= wait
                leaves = needs + _needs(first, free) <= later
                if not (ends or leaves or wait > max(_SHORT, _seconds(job) / 2)):
                    keeps = True
                    continue
                later.subtract({} if ends else needs)
            chosen.append(job)
            self._started[job] = now
            free.subtract(needs)
        self._full = len(chosen) >= available_resources["_job_count"]
        if keeps:
            self._select_after(wait + 1)
        return chosen

    def _reevaluate(self, seconds: float) -> None:
        """Replace Snakemake's method, which adds a timer at each selection: they add up to most of a core.

        The limit of `--max-jobs-per-timespan` needs one, and only where it is reached.
        """
        limiter = self.dag.workflow.scheduler.job_rate_limiter
        if self._full or limiter is None or seconds != limiter.timespan:
            self._select_after(seconds)
        self._full = True

    def _select_after(self, seconds: float) -> None:
        """Let Snakemake select jobs again after some seconds, unless it does so earlier."""
        now, due = time.monotonic(), time.monotonic() + seconds
        if now < self._due <= due:
            return
        self._timer.cancel()
        self._timer, self._due = threading.Timer(seconds, self.dag.workflow.scheduler._open_jobs.release), due
        self._timer.daemon = True
        self._timer.start()

    def _wait(self, job: Any, needed: set[Any], free: Counter[str], now: float) -> tuple[float, Counter[str]]:
        """Return in how many seconds a job is expected to start, and the resources that are free then.

        needed: running jobs that must end before.
        """
        later, wait = free.copy(), 0.0
        left = [(_left(_seconds(each), now - start), each) for each, start in self._started.items()]
        for seconds, running in sorted(left, key=lambda pair: pair[0]):
            if not needed and _needs(job, free) <= later:
                break
            later.update(_needs(running, free))
            wait, needed = seconds, needed - {running}
        return wait, later


def _needs(job: Any, limited: Counter[str]) -> Counter[str]:
    """Return the amounts of the limited resources that a job needs."""
    amounts = job.scheduler_resources
    return Counter({name: amounts[name] for name in limited if isinstance(amounts.get(name), int)})


def _seconds(job: Any) -> float:
    return float(job.scheduler_resources.get("seconds", 0))


def _left(expected: float, elapsed: float) -> float:
    """Return the expected seconds until a running job ends: a tenth of `elapsed` at least, since expectations err."""
    return max(expected - elapsed, elapsed / 10)
