"""The command line itself."""

import ast
import io
import sys
from pathlib import Path

import pytest

from darkroom.cli import main
from darkroom.commands import GROUPS, commands
from darkroom.dag.stages import STAGES


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("tun", "No such command 'tun'. Did you mean 'tune'?"),
        ("xyzzy", "No such command 'xyzzy'."),
        ("sample --by decode", "'--by': Value error, 'decode' is not one of 'generator',"),
        ("sample --image 3", "No such option: --image"),
        ("sample --text a --images 0", "'--images'"),
        ("show some.png --width 0", "'--width'"),
        ("score . --against . --limit 5", "'--limit'"),
        ("invert --guidance -1", "'--guidance'"),
    ],
)
def test_a_wrong_word_is_answered_with_what_is_near(given, text, capsys):
    with pytest.raises(SystemExit) as ended:
        main(given.split())
    assert ended.value.code == 2 and text in capsys.readouterr().err


def test_help_lists_the_commands_in_groups_without_stages(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(word in text for word in (*GROUPS, *commands())) and not any(stage in text for stage in STAGES)


def test_each_mark_is_read():
    nodes = [
        node for path in Path("src/darkroom/tools").rglob("*.py") for node in ast.walk(ast.parse(path.read_text()))
    ]
    decorators = [each for node in nodes for each in getattr(node, "decorator_list", []) if isinstance(each, ast.Call)]
    marked = [each for each in decorators if isinstance(each.func, ast.Name) and each.func.id == "command"]
    assert {ast.literal_eval(each.args[1]) for each in marked} == set(commands())


@pytest.mark.parametrize("name", commands())
def test_each_command_has_help(name, capsys):
    assert main([name, "--help"]) == 0
    assert commands()[name].help.split()[0] in capsys.readouterr().out


@pytest.mark.parametrize("words", ["sample --labels 3", "compare", "train_clip"])
def test_in_a_subfolder_the_root_is_named(words, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "docs"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert main(words.split()) == 1
    assert ": error: run this in the root of your clone: no folder here has dvc.yaml.\n" in capsys.readouterr().err
    (tmp_path / "dvc.yaml").touch()
    assert main(words.split()) == 1
    assert f": error: run this in the root of your clone: `cd {tmp_path}`.\n" in capsys.readouterr().err


def test_any_folder_will_do_for_what_reads_no_clone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["score", "made", "--against", "real"]) == 1
    assert "made is neither a folder nor a file" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["sample", "--text", ""], ["sample", "--labels="], ["show", " "]])
def test_an_empty_argument_is_refused(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2 and "an argument is empty" in capsys.readouterr().err


@pytest.fixture
def printing(tmp_path, monkeypatch):
    """Return a function that lets `darkroom times` be something else."""
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").touch()
    return lambda body: monkeypatch.setattr("darkroom.tools.times.times", body)


@pytest.mark.parametrize(("encoding", "printed"), [("utf-8", "± … █ ▀ ?"), ("cp1252", "± … ? ? ?")])
def test_what_an_encoding_does_not_have_is_replaced(encoding, printed, printing, monkeypatch):
    printing(lambda: "± … █ ▀ \udcff")
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    assert main(["times"]) == 0
    assert stream.buffer.getvalue().decode(encoding) == f"{printed}\n"


def test_a_closed_output_ends_nothing(printing, monkeypatch):
    printing(lambda: "x")
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["times"]) == 0


def test_a_long_argument_is_not_repeated_in_full(printing, capsys):
    text = "a red circle " * 100
    assert main(["compare", text]) == 1
    printed = capsys.readouterr().err
    assert f"{text[:200]}…" in printed and text[:201] not in printed


def test_a_file_that_cannot_be_opened_is_named(printing, capsys):
    printing(lambda: Path("params.yaml/x").read_text())
    assert main(["times"]) == 1
    assert capsys.readouterr().err == "darkroom times: error: params.yaml/x: Not a directory.\n"


def test_a_full_disk_behind_the_output_is_an_error(printing, monkeypatch, capsys):
    printing(lambda: "x")
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(["times"]) == 1
        monkeypatch.undo()


@pytest.mark.parametrize("encoding", ["ANSI_X3.4-1968", "UTF-8"])
def test_files_are_read_as_utf_8_in_each_locale(encoding, printing, monkeypatch):
    started = []
    printing(lambda: "x")
    monkeypatch.setattr("locale.getencoding", lambda: encoding)
    monkeypatch.setattr(sys, "flags", type("Flags", (), {"utf8_mode": 0}))
    monkeypatch.setattr(sys, "argv", ["darkroom", "times"])
    monkeypatch.setattr("os.execv", lambda _, words: started.append(words))
    main()
    assert ["utf8" in words for words in started] == [True] * (encoding != "UTF-8")
