"""Outputs that are recorded, here, and in no cache of DVC's."""

import shutil
from contextlib import chdir
from pathlib import Path

import pytest
import yaml
from dvc.repo import Repo

from darkroom.dag.lock_file import lost, lost_of, message
from darkroom.dag.records import uncached
from darkroom.dag.repo import read_status
from darkroom.params.stage import read_yaml

ROOT = Path(__file__).parents[2]
FILE, FOLDER = "0123456789abcdef", "fedcba9876543210.dir"
STAGES = {
    "ingest": {
        "foreach": "${parts}",
        "do": {"cmd": "x", "params": ["parts.${key}"], "outs": ["data/shards/${key}"]},
    },
    "train_generator": {
        "cmd": "x",
        "params": ["width"],
        "deps": ["data/shards"],
        "outs": ["models/generator", "curves/generator"],
    },
    "score_generator": {
        "cmd": "x",
        "deps": ["models/generator"],
        "outs": ["samples/generator"],
        "metrics": [{"metrics/generator.json": {"cache": False}}],
    },
}
PARAMS = {"parts": {"old": 1, "new": 2}, "width": 8}
OBJECTS = Path(".dvc/cache/files/md5")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone with four runs of stages, whose outputs are here, in dvc.lock and in the cache, as DVC has it."""
    folder = tmp_path_factory.mktemp("whole")
    with chdir(folder):
        Repo.init(no_scm=True).close()
        params(PARAMS)
        Path("dvc.yaml").write_text(yaml.safe_dump({"stages": STAGES}))
        for path in ("data/shards/old", "data/shards/new", "models/generator", "curves/generator", "samples/generator"):
            Path(path).mkdir(parents=True)
            Path(path, "file").write_text(path)
        Path("metrics").mkdir()
        Path("metrics/generator.json").write_text("{}")
        with Repo() as repo:
            repo.commit(force=True)
    return folder


@pytest.fixture
def clone(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a copy of it."""
    shutil.copytree(whole, tmp_path / "clone", symlinks=True)
    monkeypatch.chdir(tmp_path / "clone")
    return tmp_path / "clone"


def params(values: dict) -> None:
    Path("params.yaml").write_text(yaml.safe_dump(values))


def put(cache: str, md5: str) -> Path:
    path = Path(cache, "files/md5", md5[:2], md5[2:])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def empty_cache() -> None:
    """As after `dvc repro --no-commit`, or on a disk that was full."""
    shutil.rmtree(OBJECTS)


def lose(stage: str, path: str) -> None:
    """Take an output of a stage out of the cache."""
    outs = read_yaml(Path("dvc.lock"))["stages"][stage]["outs"]
    (md5,) = (out["md5"] for out in outs if out["path"] == path)
    (OBJECTS / md5[:2] / md5[2:]).unlink()


def test_what_git_holds_is_in_no_cache_on_purpose() -> None:
    found = uncached(read_yaml(ROOT / "dvc.yaml"))
    assert {"metrics/generator.json", "cards/generator.json", "metrics/clip.json"} <= found
    assert not any(path.startswith(("models", "data", "samples", "curves")) for path in found)


def test_what_is_lost_is_named_with_its_stage(clone: Path) -> None:
    lose("train_generator", "models/generator")
    lose("score_generator", "samples/generator")
    assert lost_of() == {"train_generator": ["models/generator"], "score_generator": ["samples/generator"]}
    assert lost_of(["score_generator"]) == {"score_generator": ["samples/generator"]}
    assert lost_of(deps=["models/generator/raw", "data/catalog"]) == {"train_generator": ["models/generator"]}
    assert "`dvc commit train_generator score_generator`" in message(
        {"train_generator": ["models/generator"], "score_generator": ["samples/generator"]}
    )
    shutil.rmtree("samples/generator")  # of another machine's run, as in a fresh clone
    assert lost_of() == {"train_generator": ["models/generator"]}


def test_a_part_that_is_no_part_any_more_has_lost_nothing(clone: Path) -> None:
    params(PARAMS | {"parts": {"new": 2}})
    lose("ingest@old", "data/shards/old")  # `dvc gc -w` removes the objects, and leaves the folder
    lose("ingest@new", "data/shards/new")
    assert lost_of() == {"ingest@new": ["data/shards/new"]}
    params(PARAMS)
    assert set(lost_of()) == {"ingest@old", "ingest@new"}


def test_what_lies_here_and_is_not_what_the_lock_has_is_not_lost(clone: Path) -> None:
    Path("models/generator/file").write_text("older")  # as after `git pull` of a dvc.lock, and no `dvc pull`
    lose("train_generator", "models/generator")
    assert lost_of() == {}


def test_what_is_out_of_date_for_another_reason_is_not_lost(clone: Path) -> None:
    lose("train_generator", "models/generator")
    params(PARAMS | {"width": 9})  # `dvc commit` would count the old weights as of the new width
    assert lost_of() == {}


def test_dvc_names_what_is_in_no_cache_but_not_what_is_made_again_anyway(clone: Path) -> None:
    assert read_status().lost == {}
    empty_cache()
    assert read_status().lost == {
        "ingest@old": ["data/shards/old"],
        "ingest@new": ["data/shards/new"],
        "train_generator": ["models/generator", "curves/generator"],
        "score_generator": ["samples/generator"],
    }
    params(PARAMS | {"width": 9})
    assert set(read_status().lost) == {"ingest@old", "ingest@new", "score_generator"}


@pytest.mark.parametrize(("folder", "name"), [("../elsewhere", "config"), ("{}/absolute", "config.local")])
def test_the_cache_may_lie_elsewhere(clone: Path, folder: str, name: str) -> None:
    folder = folder.format(clone)
    Path(".dvc", name).write_text(f"['remote \"r\"']\n    url = s3://bucket/%41\n[cache]\n    dir = {folder}\n")
    put(str(Path(".dvc", folder)), FOLDER)
    assert lost({"a": FOLDER, "b": FILE}) == ["b"]


def test_dvc_has_the_last_word_on_where_it_lies(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DVC_GLOBAL_CONFIG_DIR", str(clone / "person"))
    (clone / "person").mkdir()
    (clone / "person/config").write_text(f"[cache]\n    dir = {clone}/shared\n")
    put("shared", FILE)
    assert lost({"a": FOLDER, "b": FILE}) == ["a"]
