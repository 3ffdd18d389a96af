"""Presets: each fits, each means the same wherever one comes from, and params.yaml stays the file it was."""

import shutil
from pathlib import Path

import pytest
import yaml

from darkroom.cli import main
from darkroom.errors import DarkroomError
from darkroom.params.stage import lookup, read_yaml
from darkroom.tools import preset
from darkroom.tools.cores import Machine
from darkroom.tools.editing import laid_over

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in (ROOT / "presets").glob("*.yaml"))


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A folder with all that `darkroom preset` reads."""
    for name in ("params.yaml", "dvc.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "presets", tmp_path / "presets")
    for name in ("src", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "none").touch()
    monkeypatch.chdir(tmp_path)
    preset.apply("digits")  # where a person chose another preset for this clone, that is no fault
    return tmp_path


def comments(text: str) -> list[str]:
    """The comments, in their order."""
    return [line.partition("#")[2] for line in text.splitlines() if "#" in line]


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_changes_nothing_but_values_and_digits_undoes_it(clone, name):
    before = (clone / "params.yaml").read_bytes()
    preset.apply(name)  # which checks that all fits
    after = (clone / "params.yaml").read_bytes()
    assert comments(before.decode()) == comments(after.decode())
    assert (name == "digits") == (after == before)
    found = read_yaml(clone / "params.yaml")
    for key, value in preset.overlay(name).items():
        if value is preset.DEFAULT_VALUE:
            with pytest.raises(DarkroomError):
                lookup(found, key)
        else:
            assert lookup(found, key) == value, key
    preset.apply("digits")
    assert (clone / "params.yaml").read_bytes() == before


@pytest.mark.parametrize("name", ["original-decoder", "digits-ar"])  # those that change most keys
def test_the_default_brings_every_byte_back(clone, name):
    preset.apply(preset.DEFAULT)
    before = (clone / "params.yaml").read_bytes()
    preset.apply(name)
    assert (clone / "params.yaml").read_bytes() != before
    preset.apply(preset.DEFAULT)
    assert (clone / "params.yaml").read_bytes() == before


@pytest.mark.parametrize(("quicker", "precision"), [(True, "bf16"), (False, "fp32")])
def test_a_preset_may_fit_the_machine(clone, monkeypatch, quicker, precision):
    monkeypatch.setattr(preset, "this_machine", lambda device: Machine(2, bf16=quicker))
    assert main(["preset", "shapes-text", "--fit"]) == 0
    found = read_yaml(clone / "params.yaml")
    assert {lookup(found, f"{stage}.training.precision") for stage in ("train_clip", "train_decoder")} == {precision}


def test_digits_holds_what_the_others_change_and_nothing_else(clone):
    files = {name: dict(preset.leaves(read_yaml(ROOT / "presets" / f"{name}.yaml"))) for name in NAMES}
    digits = files.pop("digits")
    params = dict(preset.leaves(read_yaml(clone / "params.yaml")))
    assert digits == {key: params[key] for values in files.values() for key in values if key in params}
    for name, values in files.items():
        assert all(value != digits.get(key) for key, value in values.items() if value is not None), name


def test_the_committed_params_are_the_default(clone):
    preset.apply(preset.DEFAULT)
    assert (clone / "params.yaml").read_bytes() == (ROOT / "params.yaml").read_bytes()


def test_other_keys_stay_as_the_person_left_them(clone):
    path = clone / "params.yaml"
    path.write_text(path.read_text().replace("run: {}", "run:\n  device: cpu"))
    preset.apply("original-dit-b2")
    assert read_yaml(path)["run"]["device"] == "cpu"


def test_dvc_would_write_the_file_as_it_is(clone):
    from dvc.utils.serialize import modify_yaml

    preset.apply("original-dit-b2")
    before = (clone / "params.yaml").read_bytes()
    with modify_yaml("params.yaml"):
        pass
    assert (clone / "params.yaml").read_bytes() == before


def test_it_tells_what_changed(clone, capsys):
    assert main(["preset", "digits-bf16"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "train_tokenizer.training.images 4800 -> 8000",
        "train_tokenizer.training.warmup 1440 -> 2400",
        "train_tokenizer.training.precision (default) -> bf16",
        "train_tokenizer.training.optimizer muon -> adamw",
        "train_extractor.training.precision (default) -> bf16",
        "train_generator.training.precision (default) -> bf16",
    ]
    assert main(["preset", "digits-bf16"]) == 0
    assert "already matches the preset `digits-bf16`" in capsys.readouterr().out


def test_the_list_says_what_each_is(clone, capsys):
    assert main(["preset"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "shapes"
    for name in NAMES:
        assert f"{name}\n    " in out and preset.comment(name)[0] in out
        assert any(line.startswith("Needs: ") for line in preset.comment(name)), name


def test_an_unknown_name_is_answered_with_the_nearest(clone, capsys):
    before = (clone / "params.yaml").read_bytes()
    assert main(["preset", "digits-bf32"]) == 1
    assert "presets/ has no preset `digits-bf32`; did you mean `digits-bf16`?" in capsys.readouterr().err
    assert main(["preset", "../params"]) == 1
    assert "known: shapes, " in capsys.readouterr().err
    assert (clone / "params.yaml").read_bytes() == before


WRONG = [
    ("train_generator:\n  dit:\n    model:\n      widht: 4\n", "did you mean `width`?"),
    (
        "train_generator:\n  dit:\n    model:\n      heads: 5\n",
        "nothing was written: with the preset `mine`, params.yaml: `train_generator.",
    ),
    ("train_generator:\n  dit:\n    model: 3\n", "nothing was written"),
    ("run:\n  keep: many\n", "`run.keep` is 'many'"),
    ("run:\n  - keep\n", "nothing was written"),
    ("run: [1\n", "presets/mine.yaml is not valid YAML"),
]


@pytest.mark.parametrize(("text", "sentence"), WRONG, ids=[sentence[:30] for _, sentence in WRONG])
def test_nothing_is_written_that_is_not_valid(clone, text, sentence):
    before = (clone / "params.yaml").read_bytes()
    (clone / "presets/mine.yaml").write_text(text)
    with pytest.raises(DarkroomError) as error:
        preset.apply("mine")
    assert sentence in str(error.value)
    assert (clone / "params.yaml").read_bytes() == before


def test_comments_behind_an_empty_section_stay_where_they_are():
    before = "b: {}   # mine\n\n# of d\nd: {}\n\n# of c\nc: 1\n"
    laid = preset.laid_over(before, {"b.x": 1, "d.x": 2})
    assert yaml.safe_load(laid) == {"b": {"x": 1}, "d": {"x": 2}, "c": 1}
    assert laid.index("x: 1") < laid.index("# of d") < laid.index("x: 2") < laid.index("# of c")
    assert preset.laid_over(laid, {"b.x": preset.DEFAULT_VALUE, "d.x": preset.DEFAULT_VALUE}) == before


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("training: {batch: 64, rate: 0.1}  # both\n", {"batch": 32, "rate": 0.1}),
        ("other: &b\n  rate: 0.1\ntraining: *b\n", {"batch": 32, "rate": 0.1}),
        (f"training:\n  batch: 64  # few\n  title: {'word ' * 30}end  # long\n", None),
    ],
)
def test_the_other_keys_of_a_section_stay(text, value):
    """Whatever its style is; a long text is not wrapped."""
    laid = laid_over(text, {"training.batch": 32})
    assert yaml.safe_load(laid)["training"] == (value or {**yaml.safe_load(text)["training"], "batch": 32})
