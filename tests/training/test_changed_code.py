"""A training whose code changed: begun anew or resumed, and no checkpoint lost."""

import json
import shutil
from pathlib import Path

import pytest

from darkroom.artifacts.atomic import write_json
from darkroom.dag.fingerprint.trees import digest
from darkroom.training import checkpoint
from darkroom.training.changed_code import choose_checkpoint
from darkroom.training.loop import train
from darkroom.training.state import CODE, FINISHED
from helpers import run, training
from training.toy import Toy, places, weights

OLD = {"darkroom.models.tokenizers.kl.recipe": {"": "1", "KLRecipe.loss": "1"}}
NEW = {"darkroom.models.tokenizers.kl.recipe": {"": "1", "KLRecipe.loss": "2"}}


def trained(folder, code, images=None, choice="restart", **changes):
    """Train a toy with code of some fingerprint to its end, or for so many images; return the trainer."""
    state = places(folder).state
    state.mkdir(parents=True, exist_ok=True)
    write_json(state / CODE, code)
    settings = training(images=64, batch=8, **changes)
    if images is None:
        return train(Toy(), settings, run(changed_code=choice), places(folder))

    def stop(seen):
        if seen > images:
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        train(Toy(stop), settings, run(max_lost_seconds=1e-9, changed_code=choice), places(folder))
    return None


def test_the_same_code_continues_and_says_nothing_of_code(tmp_path, capsys):
    trained(tmp_path, OLD, 32)
    done = trained(tmp_path, OLD)
    told = capsys.readouterr().out
    assert "resumes at image" in told and "code" not in told
    assert "code_changed_at" not in done.metadata()


def test_other_code_begins_anew_and_says_what_changed_and_what_it_costs(tmp_path, capsys):
    trained(tmp_path, OLD, 32)
    done = trained(tmp_path, NEW)
    told = capsys.readouterr().out
    assert "darkroom.models.tokenizers.kl.recipe: KLRecipe.loss changed" in told
    assert "`run.changed_code` is restart: the checkpoints of 32 images are kept in" in told
    assert "resumes at image" not in told and done.metadata().get("code_changed_at") is None
    assert weights(done) == weights(trained(tmp_path / "alone", NEW))


def test_resumed_with_other_code_the_manifest_says_at_which_image(tmp_path, capsys):
    trained(tmp_path, OLD, 16)
    trained(tmp_path, NEW, 16, "resume")
    done = trained(tmp_path, OLD, choice="resume")
    assert "resumes at image 32 of 64" in capsys.readouterr().out
    assert done.metadata()["code_changed_at"] == [16, 32]
    assert weights(done) == weights(trained(tmp_path / "alone", OLD)), "the toy's code is the same in truth"


def test_an_edit_that_is_undone_finds_its_checkpoints_again(tmp_path, capsys):
    kept = {"save_every": 24}
    trained(tmp_path, OLD, 32, **kept)
    trained(tmp_path, NEW, 16, **kept)
    state = places(tmp_path).state
    aside = state / f"code-{digest(json.dumps(OLD, sort_keys=True))}"
    assert [path.name for path in checkpoint.folders(aside)][-1] == "images-000000000032"
    assert [path.name for path in (aside / "kept").iterdir()] == ["images-000000000024"]
    capsys.readouterr()
    trained(tmp_path, OLD, **kept)
    told = capsys.readouterr().out
    assert f"continuing from the checkpoints of {aside.name}" in told and "resumes at image 32" in told
    assert not aside.exists() and len(list(state.glob("code-*/images-*"))) >= 1, "those of the edit are kept, too"


def test_resume_finds_what_a_restart_set_aside(tmp_path, capsys):
    trained(tmp_path, OLD, 40)
    trained(tmp_path, NEW, 16)
    capsys.readouterr()
    done = trained(tmp_path, NEW, choice="resume")
    assert "resumes at image 40 of 64" in capsys.readouterr().out
    assert done.metadata()["code_changed_at"] == [40]


def test_a_damaged_checkpoint_is_not_chosen(tmp_path, capsys):
    trained(tmp_path, OLD, 32)
    state = places(tmp_path).state
    for folder in checkpoint.folders(state):
        (folder / "manifest.json").write_text("{}")
    assert choose_checkpoint(state, NEW, "resume")[0] is None
    assert "is damaged and was renamed" in capsys.readouterr().out
    assert not list(Path(state).glob("code-*"))


def test_a_move_that_was_killed_is_taken_up(tmp_path, capsys):
    """The newest checkpoint still lies aside, and one of those that were moved lies in both places."""
    trained(tmp_path, OLD, 32)
    state = places(tmp_path).state
    aside = state / f"code-{digest(json.dumps(OLD, sort_keys=True))}"
    older, newest = checkpoint.folders(state)[-2:]
    shutil.copytree(older, aside / older.name)
    newest.rename(aside / newest.name)
    assert choose_checkpoint(state, OLD, "restart")[0] == newest
    assert newest.is_dir() and older.is_dir() and not aside.exists()
    assert "has changed" not in capsys.readouterr().out


def test_the_furthest_of_the_same_code_is_chosen(tmp_path):
    trained(tmp_path, OLD, 16)
    trained(tmp_path, NEW, 32)
    trained(tmp_path, OLD, 8)
    state = places(tmp_path).state
    assert choose_checkpoint(state, NEW, "restart")[0] == state / "images-000000000032"
    assert choose_checkpoint(state, OLD, "restart")[0] == state / "images-000000000024"


def test_a_place_elsewhere_keeps_each_codes_checkpoints(tmp_path, capsys):
    elsewhere = str(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()

    def start(machine, code):
        state = places(tmp_path / machine).state
        state.mkdir(parents=True, exist_ok=True)
        write_json(state / CODE, code)
        settings, where = training(images=64, batch=8), {"checkpoints_to": elsewhere, "checkpoints_from": elsewhere}
        train(Toy(), settings, run(max_lost_seconds=1e-9, **where), places(tmp_path / machine))
        return capsys.readouterr().out

    start("one", OLD)
    assert "resumes" not in start("one", NEW) and "resumes" not in start("two", {**NEW, "more": {"": "1"}})
    kept = {path.name for path in (tmp_path / "elsewhere").iterdir()}
    assert len(kept) == 3 and all(name.startswith("state-") for name in kept)
    assert "resumes at image 64 of 64" in start("three", OLD) and "resumes at image 64" in start("four", NEW)


def test_what_was_finished_with_other_code_is_not_finished(tmp_path):
    trained(tmp_path, OLD)
    state = places(tmp_path).state
    (state / FINISHED).write_text("{}")
    assert choose_checkpoint(state, NEW, "restart")[0] is None
    assert not (state / FINISHED).exists()
