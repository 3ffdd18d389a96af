"""Curves are DVCLive's files, wherever a training runs, and nothing is sent."""

import subprocess
from pathlib import Path

import dvclive.studio
import pytest
from dvc.repo import Repo
from dvclive import Live

from darkroom.training.curves import Record, write_curves

RECORDS: list[Record] = [{"images": 32, "train/loss": 2.5}, {"images": 64, "train/loss": float("nan"), "val/loss": 1.0}]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("git", "records"),
    [("no commit", RECORDS), ("a commit", RECORDS), ("no repository", [])],
    ids=["no commit", "a commit", "no repository, no point"],
)
def test_curves_are_those_of_dvclive(
    git: str, records: list[Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.chdir(tmp_path)
        live = Live("theirs", dvcyaml=None, report=None, save_dvc_exp=False)
        for record in records:
            live.step = record["images"]
            for name in list(record)[1:]:
                live.log_metric(name, record[name])
        live.make_summary()
        live.end()
    clone = tmp_path / "clone"
    clone.mkdir()
    monkeypatch.chdir(clone)
    if git != "no repository":
        subprocess.run(["git", "init", "--quiet"], check=True)
    if git == "a commit":
        who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        subprocess.run(["git", *who, "commit", "--quiet", "--allow-empty", "--message", "x"], check=True)
    Repo.init(no_scm=git == "no repository").close()
    monkeypatch.setenv("DVC_ROOT", str(clone))
    monkeypatch.setenv("DVC_STUDIO_TOKEN", "x")
    monkeypatch.setenv("DVC_STUDIO_REPO_URL", "x")
    monkeypatch.setattr(dvclive.studio, "post_live_metrics", lambda *_, **__: pytest.fail("it was sent"))
    write_curves(clone / "curves/x", records)
    assert files(clone / "curves/x") == files(tmp_path / "theirs") != {}
