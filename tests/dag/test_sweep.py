"""A sweep: each point as if it had run alone, what points share once, and nothing lost by kills."""

import itertools
import json
import os
import random
import signal
import time
from collections import Counter

import pytest
import yaml

from dag.sandbox import DARKROOM, Sandbox

FOUR = ("-S", "train_extractor.training.seed=1,2", "-S", "report.title=a,b")
SWEEP = (*DARKROOM, "sweep", "s")


def locks(sandbox: Sandbox) -> dict[str, object]:
    """Return dvc.lock of each experiment, by name."""
    refs = sandbox.run("git", "for-each-ref", "--format=%(refname)", "refs/exps").split()
    assert not any("EXEC" in ref for ref in refs)
    return {ref.rpartition("/")[2]: yaml.safe_load(sandbox.run("git", "show", f"{ref}:dvc.lock")) for ref in refs}


def alone(sandbox: Sandbox, quality: int, seed: int, title: str) -> object:
    """Return dvc.lock after a run of one point in the checkout itself."""
    training = {"training": {"seed": seed, "images": 64}}
    sandbox.edit({"ingest": {"quality": quality}, "train_extractor": training, "report": {"title": title}})
    sandbox.snakemake()
    return yaml.safe_load((sandbox.root / "dvc.lock").read_text())


def test_points_are_experiments_and_share_what_they_have_in_common(toy: Sandbox) -> None:
    text = toy.run(*SWEEP, *FOUR)
    folder = toy.root / ".darkroom/sweeps/s"
    ran = Counter[str]()
    for point in folder.glob("s-*"):
        before = len((point / "logs/before.jsonl").read_text().splitlines())
        lines = map(json.loads, (point / "logs/runs.jsonl").read_text().splitlines()[before:])
        ran.update(line["stage"] for line in lines if line["event"] == "start" and line["stage"] != "code")
    assert ran == {"train_extractor": 2, "score_generator": 2, "report": 4}
    assert "s-1" in text and "Not done" not in text and (folder / "scores.csv").is_file()
    assert toy.run("git", "status", "--porcelain") == ""
    found = locks(toy)
    assert len(found) == 4
    with toy.bodies() as again:
        assert "points to run" not in toy.darkroom("sweep", "s")
        toy.dvc("exp", "apply", "s-4")
        assert toy.stale() == set()
    assert again == []
    toy.run("git", "checkout", "--quiet", ".")
    assert alone(toy, 90, 2, "a") == found["s-3"]


@pytest.fixture(scope="module")
def expected(toy_made: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """Return dvc.lock of each of eight points that ran one by one."""
    points = enumerate(itertools.product((70, 80), (1, 2), "ab"), 1)
    return {
        f"s-{number}": alone(toy_made.copy(tmp_path_factory.mktemp("one") / "clone"), *point)
        for number, point in points
    }


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("turn", range(20))
def test_kills_lose_nothing(toy: Sandbox, expected: dict[str, object], turn: int) -> None:
    draw, command = random.Random(turn), (*SWEEP, "-S", "ingest.quality=70,80", *FOUR)
    for _ in range(2):
        with toy.start(*command) as run:
            time.sleep(draw.uniform(3, 40))
            os.killpg(run.pid, signal.SIGKILL)
        if (toy.root / ".darkroom/sweeps/s/sweep.json").is_file():
            command = SWEEP
    toy.run(*command)
    assert locks(toy) == expected


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("-S", "report.titel=a,b"), "report.titel"),
        (("-S", "report.title"), "write KEY=A,B"),
        (("-S", "train_extractor.training.images=log(0,1,3)"), "both above 0"),
        (("-S", "train_extractor.training.images=yes,no"), "s-1 (train_extractor.training.images=yes): params.yaml"),
        ((), "there is no sweep s; here are: none"),
        (("--file", "missing.csv"), "missing.csv"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_runs(toy: Sandbox, words: tuple[str, ...], why: str) -> None:
    assert why in toy.fails(*DARKROOM, "sweep", "s", *words)
    assert not list((toy.root / ".darkroom/sweeps").glob("*/plan.json"))


def test_points_of_a_table_and_at_random(toy: Sandbox) -> None:
    (toy.root / "points.csv").write_text("report.title,train_extractor.training.seed\na,\nb,3\n")
    toy.darkroom(
        "sweep", "t", "--file", "points.csv", "-S", "++train_extractor.training.images=log(32,128,3)", "--show"
    )
    points = json.loads((toy.root / ".darkroom/sweeps/t/sweep.json").read_text())["points"]
    assert len(points) == 6 and points[0] == ["report.title=a", "++train_extractor.training.images=32"]
    assert points[-1][-1].endswith("=128")
    toy.darkroom("sweep", "u", "-S", "report.title=a,b,c,d,e", "--random", "2", "--show")
    assert len(json.loads((toy.root / ".darkroom/sweeps/u/sweep.json").read_text())["points"]) == 2
