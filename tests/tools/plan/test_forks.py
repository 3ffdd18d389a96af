"""Tasks in forked processes: one that gives no answer says why."""

from darkroom.tools.plan.forks import forks


def test_a_task_without_an_answer_says_what_ended_it():
    with forks(1) as submit:
        answers = [submit(*task).result() for task in (("os:chdir", "nowhere"), ("os:_exit", 3), ("os:abort",))]
    assert [answer.why for answer in answers] == [
        "ended with FileNotFoundError: [Errno 2] No such file or directory: 'nowhere'",
        "ended with exit status 3",
        "was killed by a signal, possibly because memory ran out",
    ]
