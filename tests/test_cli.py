"""The command line itself."""

import pytest

from darkroom.cli import main


@pytest.mark.parametrize(
    ("given", "near"),
    [(["tun"], "did you mean tune?"), (["compar"], "mean compare?"), (["sample", "--by", "decode"], "mean decoder?")],
)
def test_what_is_no_choice_is_answered_with_what_is_near(given, near, capsys):
    with pytest.raises(SystemExit) as ended:
        main(given)
    said = capsys.readouterr().err
    assert ended.value.code == 2 and near in said and "choose from" not in said


def test_what_is_near_to_nothing_is_answered_with_all(capsys):
    with pytest.raises(SystemExit):
        main(["xyzzy"])
    assert "choose from" in capsys.readouterr().err
