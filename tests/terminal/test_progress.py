"""A line now and then, and the groups as they came."""

from darkroom.terminal import terminal as progress


def test_groups_pass_and_lines_tell_what_is_left(monkeypatch, capsys):
    clock = iter([0.0, 4.0, 12.0, 13.0, 20.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    groups = [[1] * 10, [2] * 20, [3] * 10, [4] * 10]
    assert list(progress.with_progress(groups, 50, "x", "pairs")) == groups
    assert capsys.readouterr().out == "x: 30 of 50 pairs, 2 pairs/s, 8 s left\n"
