"""Runs that differ in seeds alone are one row, with the error that shows between them."""

import json
import math
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from darkroom.cli import main
from darkroom.errors import DarkroomError
from darkroom.tools.compare.seeds import read_runs
from darkroom.tools.compare.verdicts import compare
from helpers import DIGITS

ROOT = Path(__file__).resolve().parents[3]
CARD = {"protocol": {"n_fake": 100}, "treatment": {}}
SCORES = {"a0": 1.0, "a1": 1.2, "a2": 1.4, "b0": 0.2, "b1": 0.3, "b2": 0.4, "more": 9.0}


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout.strip()


def params(seed: int, sampling: int = 1, depth: int = 2) -> dict[str, Any]:
    return {
        "train_generator": {"training": {"seed": seed}, "depth": depth},
        "sample_generator": {"common": {"seed": sampling}},
    }


def write(fd: float, values: dict[str, Any], card: dict[str, Any] | None = None) -> None:
    for folder in ("metrics", "cards"):
        Path(folder).mkdir(exist_ok=True)
    Path("params.yaml").write_text(yaml.safe_dump(values))
    Path("metrics/generator.json").write_text(json.dumps({"fd": fd, "fd_se": 0.001, "psnr": 10 * fd, "n": 100}))
    Path("cards/generator.json").write_text(json.dumps(card or CARD))


def keep(name: str, fd: float, values: dict[str, Any], card: dict[str, Any] | None = None) -> None:
    """Keep results as an experiment of the commit that is checked out, as DVC does."""
    baseline = git("rev-parse", "HEAD")
    write(fd, values, card)
    git("add", ".")
    git("commit", "-qm", name, "--allow-empty")
    git("update-ref", f"refs/exps/{baseline[:2]}/{baseline[2:]}/{name}", "HEAD")
    git("reset", "-q", "--hard", "HEAD~1")


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three seeds of a method, three of another, and one run of other parameters; tests get a copy."""
    folder = tmp_path_factory.mktemp("repository")
    with pytest.MonkeyPatch.context() as patch:
        entered(folder, patch)
        git("init", "-q", "-b", "main")
        write(SCORES["a0"], params(0))
        git("add", ".")
        git("commit", "-qm", "a0")
        for seed in (1, 2):
            keep(f"a{seed}", SCORES[f"a{seed}"], params(seed))
        for seed in (0, 1, 2):
            keep(f"b{seed}", SCORES[f"b{seed}"], params(seed, depth=4))
        keep("more", SCORES["more"], params(0, depth=8))
    return folder


def entered(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """Go to a folder, as somebody whom git knows."""
    patch.chdir(folder)
    for who in ("AUTHOR", "COMMITTER"):
        patch.setenv(f"GIT_{who}_NAME", "x")
        patch.setenv(f"GIT_{who}_EMAIL", "x@example.org")
    return folder


@pytest.fixture
def repository(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a copy of the repository."""
    return entered(shutil.copytree(template, tmp_path, dirs_exist_ok=True), monkeypatch)


def test_runs_named_together_are_their_mean_with_the_error_between_them(repository: Path) -> None:
    runs = read_runs("main,a1,a2")
    assert (runs.runs, runs.trainings, runs.name) == (3, 3, "main,a1,a2 (3 runs)")
    assert runs.metrics["generator"]["fd"] == pytest.approx(1.2)
    assert runs.errors["generator"]["fd"] == pytest.approx(0.2 / math.sqrt(3))
    assert read_runs("main") == read_runs("main,main")


def test_all_experiments_of_other_seeds_are_found_and_no_others(repository: Path) -> None:
    assert read_runs("main", also=True).metrics == read_runs("main,a1,a2").metrics
    assert read_runs("b1", also=True).metrics == read_runs("b0,b1,b2").metrics
    assert read_runs("more", also=True).runs == 1


def test_a_copy_of_a_run_is_no_second_one_and_another_baseline_is_left_out(repository: Path) -> None:
    keep("again", 1.0, params(0))
    assert read_runs("main", also=True).runs == 3
    git("commit", "-qm", "on", "--allow-empty")
    assert read_runs("HEAD", also=True).runs == 1


def test_a_difference_is_judged_by_student_t_and_shared_test_images_are_no_hindrance(repository: Path) -> None:
    old, new = read_runs("main", also=True), read_runs("b0", also=True)
    rows = {row.name: row for row in compare(old, new)}
    assert rows["fd"].se == pytest.approx(math.hypot(0.2, 0.1) / math.sqrt(3))
    assert rows["fd"].threshold == pytest.approx(3.219, abs=0.001)  # Welch: (0.04 + 0.01)² / (0.04² + 0.01²) · 2 = 2.94
    assert rows["fd"].verdict == "better by 7.0 se" and rows["psnr"].verdict == "worse by 7.0 se"
    near = {row.name: row for row in compare(read_runs("main,a1"), read_runs("a1,a2"))}["fd"]
    assert near.verdict == "within noise" and near.threshold > 4
    mixed = {row.name: row for row in compare(old, read_runs("a1"))}
    assert mixed["psnr"].verdict == "equal" and mixed["fd"].se > 0.1


def test_fewer_than_three_trainings_say_nothing_of_the_method(repository: Path, capsys: Any) -> None:
    assert main(["compare", "main", "b0"]) == 0
    assert "apply to these weights only; the noise of training is unknown" in capsys.readouterr().out
    assert main(["compare", "main", "b0", "--seeds"]) == 0
    printed = capsys.readouterr().out
    assert "main (3 runs)" in printed and "b0 (3 runs)" in printed and "noise of training" not in printed
    for seed in (2, 3):
        keep(f"noise{seed}", 0.25, params(0, sampling=seed, depth=4))
    assert main(["compare", "main", "b0,noise2,noise3"]) == 0
    assert "noise of training is unknown" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("section", "trainings"),
    [({"training": {"seed": 0}}, 3), ({"train_generator": {"evaluate": {"seed": 0}}}, 1)],
)
def test_a_training_has_another_seed_where_its_weights_have(
    repository: Path, section: dict[str, Any], trainings: int
) -> None:
    """The seed that all trainings share counts; that of the images which are made while one trains does not."""
    for seed in range(3):
        values = json.loads(json.dumps(section).replace("0", str(seed)))
        keep(f"c{seed}", 1.0 + seed, values)
    runs = read_runs("c0,c1,c2")
    assert (runs.runs, runs.trainings) == (3, trainings)


def scored(name: str, seed: int, **scores: float) -> None:
    """Keep a run with other scores."""
    keep(name, 1.0, params(0, sampling=seed))
    git("checkout", "-q", f"refs/exps/{(at := git('rev-parse', 'HEAD'))[:2]}/{at[2:]}/{name}")
    Path("metrics/generator.json").write_text(json.dumps({"n": 100, **scores}))
    git("commit", "-qam", "scored")
    git("update-ref", f"refs/exps/{at[:2]}/{at[2:]}/{name}", "HEAD")
    git("checkout", "-q", "main")


def test_a_score_that_the_seeds_do_not_touch_keeps_the_error_of_one_run(repository: Path) -> None:
    """Here two runs differ by 0.01 of a score with an error of 0.5: between equal runs it has no error at all."""
    for name, seed, fd in (("x5", 5, 2.0), ("x6", 6, 2.0), ("y7", 7, 2.01), ("y8", 8, 2.01)):
        scored(name, seed, fd=fd, fd_se=0.5)
    row = compare(read_runs("x5,x6"), read_runs("y7,y8"))[0]
    assert (row.old_se, row.new_se, row.runs, row.verdict) == (0.5, 0.5, (1, 1), "within noise")


def test_two_runs_that_lie_close_by_chance_have_the_error_within_one(repository: Path) -> None:
    for name, seed, fd in (("x5", 5, 2.0), ("x6", 6, 2.0001)):
        scored(name, seed, fd=fd, fd_se=0.5, label_accuracy=0.75 + fd / 1e3, psnr=fd, psnr_se=0.5)
    errors = read_runs("x5,x6").errors["generator"]
    assert errors["fd"] == pytest.approx(0.5 / math.sqrt(2))
    assert errors["label_accuracy"] == pytest.approx(0.0418 / math.sqrt(2), abs=0.001)  # Wilson, of 100
    assert errors["psnr"] == pytest.approx(0.00005)  # the same test images in both: which they are is no noise


def test_a_difference_without_an_error_is_no_verdict(repository: Path) -> None:
    for name, seed, fd in (("x5", 5, 2.0), ("x6", 6, 2.1)):
        scored(name, seed, fd=fd, fd_se=0.0)
    assert compare(read_runs("x5"), read_runs("x6"))[0].verdict == "worse, error unknown"


def test_a_seed_that_is_written_out_is_the_same_by_default(repository: Path) -> None:
    """`training.seed=0,1` beside a baseline that has 0 by default are two runs, not three."""
    whole = yaml.safe_load(DIGITS.read_text())
    write(1.0, whole)
    git("add", ".")
    git("commit", "-qm", "real parameters")
    for seed in (0, 1):
        section = whole["train_generator"]
        values = whole | {"train_generator": section | {"training": section["training"] | {"seed": seed}}}
        keep(f"s{seed}", 1.0 + seed, values)
    runs = read_runs("HEAD", also=True)
    assert (runs.runs, runs.trainings) == (2, 2)
    with pytest.raises(DarkroomError, match="s0 has the same parameters and seeds as another given run"):
        read_runs("HEAD,s0")


def test_no_revision_is_named(repository: Path, capsys: Any) -> None:
    assert main(["compare", ",", "main"]) == 1
    assert "`,` names no revision" in capsys.readouterr().err


def test_what_is_taken_together_differs_in_seeds_alone(repository: Path) -> None:
    with pytest.raises(DarkroomError, match=r"main and b0 .* differ in `train_generator.depth`, which is not a seed"):
        read_runs("main,b0")
    keep("other", 1.0, params(5), {"protocol": {"n_fake": 50}, "treatment": {}})
    with pytest.raises(DarkroomError, match=r"cards of generator differ in n_fake"):
        read_runs("main,other")
