"""Outputs that are recorded, here, and in no cache of DVC's."""

from pathlib import Path

import pytest
import yaml
from dvc.repo import Repo

from darkroom.dvc_cache import lost, lost_of, sentence, uncached
from darkroom.params import read_yaml

ROOT = Path(__file__).parents[1]
FILE, FOLDER = "0123456789abcdef", "fedcba9876543210.dir"
STAGES = {
    "train_dit": {"cmd": "x", "outs": ["models/dit", "curves/dit"]},
    "score_dit": {"cmd": "x", "outs": ["samples/dit"], "metrics": [{"metrics/dit.json": {"cache": False}}]},
}


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a clone with two stages, all of whose outputs are here and in the cache, but for the metrics."""
    monkeypatch.chdir(tmp_path)
    Repo.init(no_scm=True).close()
    Path("dvc.yaml").write_text(yaml.safe_dump({"stages": STAGES}))
    outs = {"train_dit": ["models/dit", "curves/dit"], "score_dit": ["samples/dit", "metrics/dit.json"]}
    entries = {
        name: {"cmd": "x", "outs": [{"path": path, "md5": f"{path.replace('/', '')}.dir"} for path in paths]}
        for name, paths in outs.items()
    }
    Path("dvc.lock").write_text(yaml.safe_dump({"schema": "2.0", "stages": entries}, sort_keys=False))
    for path in [path for paths in outs.values() for path in paths]:
        Path(path).mkdir(parents=True)
        if path != "metrics/dit.json":
            put(".dvc/cache", f"{path.replace('/', '')}.dir")
    return tmp_path


def put(cache: str, md5: str) -> Path:
    path = Path(cache, "files/md5", md5[:2], md5[2:])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_what_git_holds_is_in_no_cache_on_purpose() -> None:
    found = uncached(read_yaml(ROOT / "dvc.yaml"))
    assert {"metrics/dit.json", "cards/dit.json", "metrics/clip.json"} <= found
    assert not any(path.startswith(("models", "data", "samples", "curves")) for path in found)


def test_nothing_is_lost_where_all_is_cached(clone: Path) -> None:
    assert lost_of() == {}


def test_what_is_lost_is_named_with_its_stage(clone: Path) -> None:
    put(".dvc/cache", "modelsdit.dir").unlink()
    put(".dvc/cache", "samplesdit.dir").unlink()
    assert lost_of() == {"train_dit": ["models/dit"], "score_dit": ["samples/dit"]}
    assert lost_of(["score_dit"]) == {"score_dit": ["samples/dit"]}
    assert lost_of(deps=["models/dit/raw", "data/catalog"]) == {"train_dit": ["models/dit"]}
    assert "`dvc commit train_dit score_dit`" in sentence(lost_of())
    Path("samples/dit").rmdir()  # of another machine's run, as in a fresh clone
    assert lost_of() == {"train_dit": ["models/dit"]}


@pytest.mark.parametrize("name", ["config", "config.local"])
@pytest.mark.parametrize("folder", ["../elsewhere", "{}/absolute"])
def test_the_cache_may_lie_elsewhere(clone: Path, name: str, folder: str) -> None:
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
