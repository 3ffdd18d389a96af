"""Snakemake's scheduler of a run: who starts, and for whom cores are kept free."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from snakemake_interface_scheduler_plugins.registry import SchedulerPluginRegistry

import snakemake_scheduler_plugin_darkroom as plugin


@dataclass(eq=False)
class Job:
    name: str
    priority: int
    seconds: int = 5
    cores: int = 1
    finished: bool = False

    @property
    def scheduler_resources(self) -> dict[str, Any]:
        return {"_cores": self.cores, "seconds": self.seconds, "tmpdir": "/tmp"}

    def __str__(self) -> str:
        return self.name


class Dag:
    @staticmethod
    def finished(job: Job) -> bool:
        return job.finished


@dataclass
class Run:
    """A run on some cores, at a time of its own."""

    cores: int
    monkeypatch: pytest.MonkeyPatch
    running: list[Job] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scheduler = plugin.Scheduler(Dag(), None, None)
        self.at(0.0)

    def at(self, seconds: float) -> None:
        self.monkeypatch.setattr(plugin.time, "monotonic", lambda: 1000 + seconds)

    def start(self, *ready: Job) -> list[str]:
        """Start what the scheduler selects, and return the names."""
        free = self.cores - sum(job.cores for job in self.running if not job.finished)
        chosen = self.scheduler.select_jobs(set(ready), ready, {"_cores": free, "_job_count": 99}, {})
        assert sum(job.cores for job in chosen) <= free
        self.running += chosen
        return [job.name for job in chosen]


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(2, monkeypatch)


def test_snakemake_finds_it():
    assert SchedulerPluginRegistry().get_plugin("darkroom").name == "darkroom"


def test_the_longest_chain_starts_first(two):
    assert two.start(Job("short", 5), Job("long", 90), Job("middle", 40)) == ["long", "middle"]


def test_of_equal_chains_the_one_of_more_threads_starts_first(two):
    assert two.start(Job("a", 9), Job("b", 9, cores=2)) == ["b"]


@pytest.mark.parametrize(
    ("left", "seconds", "started"),
    [
        (8, 5, ["other"]),  # ends before
        (8, 9, []),
        (14, 20, []),
        (40, 60, ["other"]),  # the core would idle for more than half of the time
        (40, 200, []),
    ],
)
def test_cores_are_kept_for_the_longest_chain_where_the_wait_is_short(two, left, seconds, started):
    two.start(Job("before", 200, seconds=left))
    assert two.start(Job("training", 100, seconds=60, cores=2), Job("other", 10, seconds=seconds)) == started


def test_it_starts_when_the_cores_are_free(two):
    before, training, other = Job("before", 200), Job("training", 100, cores=2), Job("other", 10, seconds=30)
    assert two.start(before) == ["before"] and two.start(training, other) == []
    before.finished = True
    assert two.start(training, other) == ["training"]


def test_who_leaves_enough_cores_may_start(monkeypatch):
    run = Run(16, monkeypatch)
    run.start(Job("before", 200, seconds=10, cores=11))
    training, others = Job("training", 100, cores=12), [Job(f"other {n}", 10, seconds=600) for n in range(5)]
    assert run.start(training, *others) == ["other 0", "other 1", "other 2", "other 3"]


def test_a_job_that_takes_longer_than_expected_is_waited_for_as_long_again(two):
    two.start(Job("before", 200, seconds=5))
    ready = Job("training", 100, cores=2), Job("other", 10, seconds=30)
    two.at(6)
    assert two.start(*ready) == []
    two.at(3600)
    assert two.start(*ready) == ["other"]


def test_a_job_that_failed_and_is_tried_again_holds_nothing(two):
    again, training, other = Job("again", 5, seconds=60), Job("training", 100, cores=2), Job("other", 10)
    two.start(again, Job("before", 200, seconds=60))
    two.running.remove(again)
    assert two.start(again, training, other) == ["other"]
