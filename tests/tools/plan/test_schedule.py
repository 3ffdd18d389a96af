"""When the last of several stages ends, by hand."""

from hypothesis import given
from hypothesis import strategies as st

from darkroom.tools.plan.plan import Job, side_by_side


def test_stages_wait_for_those_that_they_need_and_for_cores():
    """a before b and c, c before d: on one core 10, on two 1 + max(3, 2 + 4)."""
    jobs = {"a": Job(1, 1), "b": Job(3, 1), "c": Job(2, 1), "d": Job(4, 1)}
    needs = {"b": {"a"}, "c": {"a"}, "d": {"a", "c", "done already"}}
    assert side_by_side(jobs, needs, 1) == 10
    assert side_by_side(jobs, needs, 2) == 7
    assert side_by_side({}, needs, 2) == 0


def test_a_stage_of_all_threads_runs_alone_and_more_than_there_are_means_all():
    jobs = {"one": Job(3, 1), "two": Job(2, 2), "four": Job(1, 4)}
    assert side_by_side(jobs, {}, 2) == 6


def test_there_is_one_gpu():
    jobs = {"one": Job(3, 1, gpu=True), "two": Job(2, 1, gpu=True), "three": Job(4, 1)}
    assert side_by_side(jobs, {}, 4) == 5


@given(st.lists(st.tuples(st.floats(0.1, 9), st.integers(1, 3)), min_size=1, max_size=8), st.integers(1, 4))
def test_no_core_works_twice_and_none_waits_for_ever(found, cores):
    jobs = {str(number): Job(seconds, threads) for number, (seconds, threads) in enumerate(found)}
    taken = side_by_side(jobs, {}, cores)
    total = sum(job.seconds for job in jobs.values())
    work = sum(job.seconds * min(job.threads, cores) for job in jobs.values())
    assert max(work / cores, max(job.seconds for job in jobs.values())) - 1e-9 <= taken <= total + 1e-9
