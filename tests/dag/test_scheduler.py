"""Snakemake's scheduler of a run: who starts, and for whom cores are kept free."""

import subprocess
import sys
import time
from dataclasses import dataclass, field
from types import SimpleNamespace
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
    needs: tuple["Job", ...] = ()

    @property
    def scheduler_resources(self) -> dict[str, Any]:
        return {"_cores": self.cores, "seconds": self.seconds, "tmpdir": "/tmp"}

    def __str__(self) -> str:
        return self.name


@dataclass
class Run:
    """A run on some cores, at a time of its own; it stands for Snakemake's scheduler, its workflow and its DAG."""

    cores: int
    monkeypatch: pytest.MonkeyPatch
    started: list[Job] = field(default_factory=list)
    jobs: tuple[Job, ...] = ()
    again: float | None = None  # after how many seconds it is to select again
    timers: list[float] = field(default_factory=list)  # those that are not cancelled

    def __post_init__(self) -> None:
        self.monkeypatch.setattr(plugin.threading, "Timer", self._timer)
        self.plugin = plugin.Scheduler(self, None, None)
        self.workflow = SimpleNamespace(scheduler=self)
        self._open_jobs = SimpleNamespace(release=lambda: None)
        self.at(0.0)

    def _timer(self, seconds: float, function: Any) -> SimpleNamespace:
        def start() -> None:
            self.again = seconds
            self.timers.append(seconds)

        return SimpleNamespace(start=start, cancel=self.timers.clear, is_alive=lambda: bool(self.timers))

    @property
    def running(self) -> set[Job]:
        return {job for job in self.started if not job.finished}

    def needrun_jobs(self) -> list[Job]:
        return [job for job in (*self.jobs, *self.started) if not job.finished]

    @staticmethod
    def job_dependencies(job: Job) -> tuple[Job, ...]:
        return job.needs

    def at(self, seconds: float) -> None:
        self.monkeypatch.setattr(plugin.time, "monotonic", lambda: 1000 + seconds)

    def start(self, *remaining: Job) -> list[str]:
        """Start what the scheduler selects, and return the names."""
        self.jobs, self.again = remaining, None
        free = self.cores - sum(job.cores for job in self.running)
        ready = {job for job in remaining if all(each.finished for each in job.needs)}
        chosen = self.plugin.select_jobs(ready, remaining, {"_cores": free, "_job_count": 99}, {})
        assert chosen is not None and sum(job.cores for job in chosen) <= free
        assert chosen or self.running or not ready, "nothing runs, and nothing would start it again"
        self.started += chosen
        return [job.name for job in chosen]


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(2, monkeypatch)


def test_snakemake_finds_it():
    assert SchedulerPluginRegistry().get_plugin("darkroom").name == "darkroom"


def test_the_longest_chain_starts_first(two):
    assert two.start(Job("short", 5), Job("long", 90), Job("middle", 40)) == ["long", "middle"]


def test_of_equal_chains_the_longest_job_starts_first(two):
    """As the U-Nets of a decoder, whose rule has one priority."""
    assert two.start(Job("a", 90, seconds=40, cores=2), Job("b", 90, seconds=80, cores=2)) == ["b"]


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
    assert two.again == (None if started else left + 1)


def test_many_selections_leave_one_timer(two):
    two.start(Job("before", 200, seconds=8))
    waiting = Job("training", 100, seconds=60, cores=2), Job("other", 10, seconds=9)
    for second in range(4):
        two.at(second)
        assert two.start(*waiting) == [] and two.timers == [9]


def test_a_timer_whose_time_is_over_is_no_timer(two):
    """Its thread lives on for a moment after it let Snakemake select."""
    two.start(Job("before", 200, seconds=8))
    waiting = Job("training", 100, seconds=60, cores=2), Job("other", 10, seconds=9)
    two.start(*waiting)
    two.at(12)
    two.start(*waiting)
    assert two.timers == [pytest.approx(2.2)]  # a tenth of the 12 seconds, and 1


@pytest.mark.parametrize(("limit", "timers"), [(99, []), (1, [1.0])])
def test_the_limit_of_jobs_is_waited_for_where_it_is_reached(two, limit, timers):
    two.job_rate_limiter = SimpleNamespace(timespan=1.0)
    assert two.plugin.select_jobs({job := Job("only", 9)}, {job}, {"_cores": 2, "_job_count": limit}, {}) == [job]
    two._schedule_reevalutation(1.0)
    assert two.timers == timers
    two._schedule_reevalutation(1.0)  # after a selection that Snakemake left out, since the limit was reached
    assert two.timers == [1.0]


def test_snakemake_sleeps_while_jobs_wait_for_cores(tmp_path):
    """It selects when a job ends, and by time at most once per second; otherwise as often as jobs have ended."""
    rule = (
        "rule {name}:\n    output: '{name}'\n    priority: {priority}\n    threads: {threads}\n    shell: '{shell}'\n"
    )
    jobs = [(f"early{n}", 9, 1, "touch {output}") for n in range(6)]
    jobs += [("long", 8, 2, "touch begun; sleep 5; touch {output}"), ("late", 0, 2, "touch {output}")]
    rules = [rule.format(name=name, priority=rank, threads=cores, shell=text) for name, rank, cores, text in jobs]
    names = [name for name, *_ in jobs]
    (tmp_path / "Snakefile").write_text("\n".join([f"rule all:\n    input: {names}\n", *rules]))
    command = [sys.executable, "-m", "snakemake", "--cores", "2", "--verbose", "--scheduler", "darkroom"]
    begin = time.monotonic()
    log = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stderr
    assert (tmp_path / "late").exists()
    assert 0 < log.count("Resources before job selection") <= len(jobs) + 1 + time.monotonic() - begin


def test_it_starts_when_the_cores_are_free(two):
    before, training, other = Job("before", 200), Job("training", 100, cores=2), Job("other", 10, seconds=30)
    assert two.start(before) == ["before"] and two.start(training, other) == []
    before.finished = True
    assert two.start(training, other) == ["training"]


def test_a_job_that_leaves_enough_cores_may_start(monkeypatch):
    run = Run(16, monkeypatch)
    run.start(Job("before", 200, seconds=10, cores=11))
    training, others = Job("training", 100, cores=12), [Job(f"other {n}", 10, seconds=600) for n in range(5)]
    assert run.start(training, *others) == ["other 0", "other 1", "other 2", "other 3"]


def test_a_job_that_takes_longer_than_expected_is_waited_for_a_tenth_longer(two):
    two.start(Job("before", 200, seconds=5))
    ready = Job("training", 100, cores=2), Job("other", 10, seconds=30)
    two.at(6)
    assert two.start(*ready) == []
    two.at(3600)
    assert two.start(*ready) == ["other"]


def test_a_job_that_failed_and_is_tried_again_holds_nothing(two):
    again, training, other = Job("again", 5, seconds=60), Job("training", 100, cores=2), Job("other", 10)
    two.start(again, Job("before", 200, seconds=60))
    two.started.remove(again)
    assert two.start(again, training, other) == ["other"]


def test_inputs_of_earlier_runs_count_as_made(two):
    """They are in the DAG, and neither finished nor to be run."""
    two.start(Job("before", 200, seconds=8))
    made = Job("made before", 300)
    training, other = Job("training", 100, cores=2), Job("other", 10, seconds=30)
    two.monkeypatch.setattr(Run, "job_dependencies", staticmethod(lambda job: (made,)))
    assert two.start(training, other) == []


def test_groups_are_left_to_snakemake(two):
    assert two.plugin.select_jobs({Job("group", 1)}, [Job("member", 1)], {"_cores": 2}, {}) is None


@pytest.mark.parametrize(("left", "started"), [(3, ["before"]), (20, ["before", "other"])])
def test_cores_are_kept_for_what_is_ready_soon(two, left, started):
    before = Job("before", 200, seconds=left)
    training, other = Job("training", 100, cores=2, needs=(before,)), Job("other", 10, seconds=30)
    assert two.start(before, training, other) == started


def test_nothing_is_kept_for_what_needs_a_failed_job(two):
    failed, before = Job("failed", 200, seconds=3), Job("before", 200, seconds=8)
    training, other = Job("training", 100, cores=2, needs=(failed,)), Job("other", 10, seconds=30)
    assert two.start(failed, before) == ["before", "failed"]
    two.started.remove(failed)
    two.monkeypatch.setattr(Run, "needrun_jobs", lambda self: [failed, before, training, other])
    assert two.start(training, other) == ["other"]
