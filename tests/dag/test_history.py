"""Which of the runs that a history tells of say what a stage will take."""

import json

import pytest

from darkroom.dag.history import Run, last_runs

END = {"stage": "report", "event": "end", "seconds": 7.5, "cpu": 7.0, "machine": "here", "params": "now"}
START = {"stage": "report", "event": "start"}


@pytest.fixture
def told(tmp_path):
    """Returns what a history of some lines says of `report`."""

    def last(*lines):
        path = tmp_path / "runs.jsonl"
        path.write_text("\n".join(map(json.dumps, lines)) + '\n{"stage": "rep')
        return last_runs(path, "here", {"report": "now"}).get("report")

    return last


def test_a_whole_run_of_these_parameters_here_says_it(told, tmp_path):
    assert told(START, END) == Run(7.5, alike=True)
    assert told(START, END, START, END | {"seconds": 6.5}) == Run(6.5, alike=True)
    assert told(START) is None and last_runs(tmp_path / "none", "here", {}) == {}


@pytest.mark.parametrize("other", [{"machine": "there"}, {"params": "before"}, {"cpu": 1.0}])
def test_another_machine_other_parameters_or_a_busy_one_do_not(told, other):
    assert told(START, END | other) == Run(7.5, alike=False)
    assert told(START, END | other, START, END) == Run(7.5, alike=True)


def test_a_run_that_went_on_where_another_was_ended_does_not(told):
    assert told(START, START, END) == Run(7.5, alike=False)
    assert told(START, START, END, START, END) == Run(7.5, alike=True)


def test_a_line_of_an_older_version_does_not(told):
    assert told(START, {"stage": "report", "event": "end", "seconds": 7.5}) == Run(7.5, alike=False)
