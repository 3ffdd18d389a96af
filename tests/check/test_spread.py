"""A training that runs once for each entry of a key of params.yaml: each entry is a work of its own, everywhere.

`train_nets` is such a stage, made by hand: `foreach: ${train_nets.nets}` over `base` and `up64`.
"""

import json
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import yaml

from darkroom import cli, runner
from darkroom.check import check as checking
from darkroom.dag import stages
from darkroom.errors import DarkroomError
from darkroom.params.run import Run
from darkroom.params.section import Section
from darkroom.params.stage import address, file_name, items, read_yaml, spread_over, stage_params
from darkroom.params.training import Training
from darkroom.tools.doctor import clone as doctor
from darkroom.tools.plan import plan
from darkroom.training import state
from darkroom.training.state import FINISHED, LOCK, identity, open_state, root, sweep
from helpers import training

ROOT = Path(__file__).parents[2]
ENTRY = {
    "foreach": "${train_nets.nets}",
    "do": {
        "cmd": "PYTHONPATH=src python -m darkroom train_nets",
        "params": ["train_nets.training", "train_nets.nets.${key}"],
        "deps": ["build/code/train_nets.json", "${item.embeddings}", "data/catalog"],
        "outs": ["models/nets/${key}", "curves/nets/${key}"],
    },
}


class Net(Section):
    """One of the nets."""

    embeddings: str
    width: int
    training: dict[str, Any]


class TrainNets(Section):
    """All of them, or in what a stage is given, one."""

    training: Training
    nets: dict[str, Net]

    def training_of(self, item: str) -> Training:
        """Return the settings of one training."""
        return Training.model_validate({**self.training.model_dump(), **self.nets[item].training})


class Params(Section):
    """What dvc.yaml gives to `train_nets`."""

    run: Run
    train_nets: TrainNets


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """This clone's parameters and DAG, and one more stage."""
    values, dvc = (read_yaml(ROOT / name) for name in ("params.yaml", "dvc.yaml"))
    values["train_nets"] = {
        "training": training().model_dump(mode="json"),
        "nets": {
            "base": {"embeddings": "data/latents", "width": 8, "training": {}},
            "up64": {"embeddings": "data/none", "width": 4, "training": {"images": 128}},
        },
    }
    dvc["stages"]["train_nets"] = ENTRY
    for name, document in (("params.yaml", values), ("dvc.yaml", dvc)):
        (tmp_path / name).write_text(yaml.safe_dump(document, sort_keys=False))
    for name in ("src", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "data/catalog").mkdir(parents=True)
    (tmp_path / "data/latents").mkdir()
    (tmp_path / "data/none").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    monkeypatch.setitem(stages.FOREACH, "train_nets", "train_nets.nets")
    for module in (checking, cli, runner):
        monkeypatch.setattr(
            module, "STAGES", {**stages.STAGES, "train_nets": stages.Stage("train_nets_settings:Params")}
        )
    monkeypatch.setattr(runner, "TRAININGS", (*stages.TRAININGS, "train_nets"))
    monkeypatch.setattr(state, "fingerprint", lambda stage, item: {})  # of modules in files
    monkeypatch.setitem(sys.modules, "train_nets_settings", types.SimpleNamespace(Params=Params))
    return tmp_path


def change(name, *path, value):
    values = read_yaml(Path(name))
    place = values
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    Path(name).write_text(yaml.safe_dump(values, sort_keys=False))


@pytest.mark.usefixtures("clone")
def test_an_item_is_given_its_own_section_and_what_all_share():
    params, dvc = read_yaml(Path("params.yaml")), read_yaml(Path("dvc.yaml"))
    assert spread_over(dvc, "train_nets") == "train_nets.nets" and spread_over(dvc, "train_generator") is None
    assert items(params, dvc, "train_nets") == ["base", "up64"] and items(params, dvc, "train_generator") == [None]
    assert (address("train_nets", "base"), file_name("train_nets", "base")) == ("train_nets@base", "train_nets-base")
    assert address("train_generator", None) == file_name("train_generator", None) == "train_generator"
    before = stage_params("train_nets", "base")
    assert set(before) == {"run", "train_nets"} and set(before["train_nets"]["nets"]) == {"base"}
    change("params.yaml", "train_nets", "nets", "up64", "width", value=16)
    assert stage_params("train_nets", "base") == before
    with pytest.raises(DarkroomError, match=r"`train_nets\.nets\.bse` is not in params\.yaml.*Did you mean `base`"):
        stage_params("train_nets", "bse")


@pytest.mark.usefixtures("clone")
def test_dvc_reads_the_same_out_of_dvc_yaml():
    from dvc.repo import Repo

    subprocess.run([Path(sys.executable).with_name("dvc"), "init", "--no-scm", "--quiet"], check=True)
    with Repo() as repo:
        found = {stage.addressing: stage for stage in repo.index.stages}
    base, up64 = found["train_nets@base"], found["train_nets@up64"]
    assert [out.def_path for out in base.outs] == ["models/nets/base", "curves/nets/base"]
    assert {dep.def_path for dep in base.deps} == {
        "build/code/train_nets.json",
        "data/latents",
        "data/catalog",
        "params.yaml",
    }
    assert {dep.def_path for dep in up64.deps} == {
        "build/code/train_nets.json",
        "data/none",
        "data/catalog",
        "params.yaml",
    }
    assert base.cmd == up64.cmd == "PYTHONPATH=src python -m darkroom train_nets"


@pytest.mark.usefixtures("clone")
def test_check_knows_the_commands_paths_and_folders_of_each_item():
    assert checking.check().startswith(f"{len(stages.STAGES) + 1} stages, 2 parts")
    change("params.yaml", "train_nets", "nets", "up64", "embeddings", value="data/embedings")
    with pytest.raises(DarkroomError, match=r"`train_nets\.nets\.up64\.embeddings` is data/embedings, which does not"):
        checking.check()
    change("params.yaml", "train_nets", "nets", "up64", "embeddings", value="data/none")
    for part, value, sentence in [
        ("cmd", "PYTHONPATH=src python -m darkroom train_nets ${key}", "must be `PYTHONPATH=src python -m dark"),
        ("outs", ["models/nets", "curves/nets/${key}"], "train_nets@up64 writes models/nets, but train_nets@base"),
    ]:
        change("dvc.yaml", "stages", "train_nets", value={**ENTRY, "do": {**ENTRY["do"], part: value}})
        with pytest.raises(DarkroomError, match=re.escape(sentence)):
            checking.check()
    change("dvc.yaml", "stages", "train_nets", value={**ENTRY, "foreach": "${parts}"})
    with pytest.raises(DarkroomError, match=r"`foreach` of train_nets is \$\{parts\}, but must be \$\{train_nets.nets"):
        checking.check()
    change("dvc.yaml", "stages", "train_nets", value=ENTRY["do"])
    with pytest.raises(DarkroomError, match=r"`foreach` of train_nets is none, but must be"):
        checking.check()


@pytest.mark.usefixtures("clone")
def test_each_item_has_its_own_state_and_lock():
    with open_state("train_nets", "base") as base, open_state("train_nets", "up64") as up64:
        assert base.name.startswith("train_nets-base-") and up64.name.startswith("train_nets-up64-")
        with (
            pytest.raises(DarkroomError, match="train_nets@base is already being trained"),
            open_state("train_nets", "base"),
        ):
            pass
    before = identity("train_nets", "base")
    change("params.yaml", "train_nets", "nets", "up64", "width", value=16)
    Path("data/none").write_text("other")
    assert identity("train_nets", "base") == before and identity("train_nets", "up64")["stage"] == "train_nets@up64"
    change("params.yaml", "train_nets", "nets", "base", "width", value=16)
    assert identity("train_nets", "base") != before


@pytest.mark.usefixtures("clone")
def test_a_state_goes_when_dvc_lock_holds_its_own_item():
    Path("models/nets/base").mkdir(parents=True)
    Path("models/nets/base/x").write_text("x")
    with open_state("train_nets", "base") as folder:
        pass
    finished = json.loads((folder / FINISHED).read_text())
    assert finished["stage"] == "train_nets@base" and list(finished["outs"]) == ["models/nets/base"]
    outs = [{"path": path, "md5": md5} for path, md5 in finished["outs"].items()]
    for md5 in finished["outs"].values():
        cached = Path(".dvc/cache/files/md5", md5[:2], md5[2:])
        cached.parent.mkdir(parents=True)
        cached.touch()
    for name, there in (("train_nets@up64", True), ("train_nets@base", False)):
        Path("dvc.lock").write_text(yaml.safe_dump({"schema": "2.0", "stages": {name: {"cmd": "x", "outs": outs}}}))
        sweep()
        assert folder.exists() == there


def test_doctor_names_the_item_that_was_stopped(clone):
    folder = root() / "train_nets-up64-0123456789abcdef"
    (folder / "images-000000000320").mkdir(parents=True)
    (folder / LOCK).touch()
    (found,) = doctor.states()
    assert "`dvc repro train_nets@up64` continues it" in found.text


@pytest.fixture
def started(clone, monkeypatch):
    """What a start of `train_nets@base` in so many processes leads to."""
    monkeypatch.setattr(runner, "_own_checkout", lambda: None)
    for name in ("set_threads", "choose_device"):
        monkeypatch.setattr(runner, name, lambda value: None)
    for name in ("RANK", "WORLD_SIZE", "DARKROOM_SUPERVISOR"):
        monkeypatch.delenv(name, raising=False)
    seen: list[Any] = []
    body = types.SimpleNamespace(run=lambda params, item: seen.append((item, params.train_nets.nets.keys())))
    monkeypatch.setitem(sys.modules, "darkroom.stages.train_nets", body)
    monkeypatch.setattr(runner, "launch", lambda *metadata: seen.append(metadata))

    def start(processes):
        change("params.yaml", "train_nets", "training", "processes", value=processes)
        assert cli.main(["train_nets", "base"]) == 0
        return seen

    return start


def test_the_body_the_log_and_the_history_are_of_one_item(started, capsys):
    assert started(1) == [("base", {"base"})]
    assert Path("logs/train_nets-base.log").read_text().startswith("done in ")
    assert capsys.readouterr().out.startswith("[train_nets@base] done in ")
    assert {json.loads(line)["stage"] for line in Path("logs/runs.jsonl").read_text().splitlines()} == {
        "train_nets@base"
    }


def test_the_item_is_the_one_that_is_named_or_that_of_dvc(started, capsys, monkeypatch):
    seen = started(1)
    assert cli.main(["train_nets", "up46"]) == 1
    assert "Did you mean `up64`?" in capsys.readouterr().err
    for variable in ("", "train_net@base", "train_nets", "train_nets@"):
        monkeypatch.setenv("DVC_STAGE", variable)
        assert cli.main(["train_nets"]) == 1
        assert "the stage runs once per net: use `darkroom train_nets NET`" in capsys.readouterr().err
    monkeypatch.setenv("DVC_STAGE", "train_nets@up64")
    assert cli.main(["train_nets"]) == 0
    assert seen[-1] == ("up64", {"up64"})


def test_several_processes_are_told_the_item(started):
    assert started(2) == [(["train_nets", "base"], 2, None)]


@pytest.mark.usefixtures("clone")
def test_the_picture_has_one_box_for_all_items_and_the_edges_of_each(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "workflow")
    from draw_dag import draw, read_graph

    params, dvc = read_yaml(Path("params.yaml")), read_yaml(Path("dvc.yaml"))
    graph = read_graph(params, dvc)
    assert graph.spread["train_nets"] == "net" and graph.spread["ingest"] == "part"
    assert ("encode_latents", "train_nets") in graph.edges, "base reads the latents, up64 does not"
    assert ">@net</text>" in draw(graph)


def test_a_plan_names_items_as_dvc_does(monkeypatch):
    known = ["ingest@first", "train_nets@base", "train_nets@up64", "report"]
    assert plan.choose(["train_nets"], known, set(), False) == known[1:3]
    assert plan.choose(["train_nets@up64"], known, set(), False) == known[2:3]
