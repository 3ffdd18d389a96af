"""A sweep: each point as if it had run alone, what points share once, and nothing lost by kills."""

import itertools
import json
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
import yaml

from dag.sandbox import DARKROOM, Sandbox, wait_until
from darkroom.cli import main
from darkroom.errors import DarkroomError
from darkroom.tools.sweep.points import points

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


def bodies(sandbox: Sandbox, event: str) -> Counter[str]:
    """Return how often the body of each stage began ("start") or finished ("end") in all points together."""
    counts = Counter[str]()
    for point in sandbox.root.glob(".darkroom/sweeps/s/s-*"):
        before = len((point / "logs/before.jsonl").read_text().splitlines())
        lines = map(json.loads, (point / "logs/runs.jsonl").read_text().splitlines()[before:])
        counts.update(line["stage"] for line in lines if line["event"] == event and line["stage"] != "code")
    return counts


def test_points_are_experiments_and_share_what_they_have_in_common(toy: Sandbox) -> None:
    text = toy.run(*SWEEP, *FOUR)
    folder = toy.root / ".darkroom/sweeps/s"
    assert bodies(toy, "start") == {"train_extractor": 2, "score_generator": 2, "report": 4}
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


EIGHT = (*SWEEP, "-S", "ingest.quality=70,80", *FOUR)


@pytest.fixture(scope="module")
def undisturbed(toy_made: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Counter[str]:
    """Return how often the body of each stage ran in a sweep of the eight points without kills."""
    sandbox = toy_made.copy(tmp_path_factory.mktemp("eight") / "clone")
    sandbox.run(*EIGHT)
    return bodies(sandbox, "end")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("turn", range(20))
def test_kills_lose_nothing(toy: Sandbox, expected: dict[str, object], undisturbed: Counter[str], turn: int) -> None:
    draw, command = random.Random(turn), EIGHT
    for _ in range(2):
        with toy.start(*command) as run:
            time.sleep(draw.uniform(3, 40))
            os.killpg(run.pid, signal.SIGKILL)
        if (toy.root / ".darkroom/sweeps/s/sweep.json").is_file():
            command = SWEEP
    toy.run(*command)
    assert locks(toy) == expected
    ended = bodies(toy, "end")
    # A kill between the end of a body and DVC's record of it repeats the body; two run at once.
    assert ended >= undisturbed and (ended - undisturbed).total() <= 4 and undisturbed["train_extractor"] == 4


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("s", "-S", "report.titel=a,b"), "report.titel"),
        (("s", "-S", "report.title=a,2"), "s-2 (report.title=2): params.yaml"),
        (("main", "-S", "report.title=a,b"), "`main-1` is already"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_runs(toy: Sandbox, words: tuple[str, ...], why: str) -> None:
    toy.run("git", "branch", "main-1")
    assert why in toy.fails(*DARKROOM, "sweep", *words)
    assert not list((toy.root / ".darkroom/sweeps").glob("*"))


REFUSED = {
    "s -S report.title": "write KEY=A,B",
    "s -S train_extractor.training.images=log(0,1,3)": "both above 0",
    "s": "no sweep is named `s`. Existing: none",
    "s --random 3": "give one of them",
    "s -S report.title=range(3,1)": "has no points",
    "s -S report.title=a --profile profiles/nosuch": "profiles/nosuch: no such folder",
    "s --file missing.csv": "missing.csv",
    "a;b -S report.title=a,b": "`a;b` is not a valid name",
}


def test_what_asks_for_no_sweep_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").touch()
    for words, why in REFUSED.items():
        assert main(["sweep", *words.split()]) == 1, words
        assert why in capsys.readouterr().err, words


def test_points_of_a_table_and_at_random(tmp_path: Path) -> None:
    file = tmp_path / "points.csv"
    file.write_text("report.title,a.seed\na,\nb,null\n")
    assert points(["++a.images=log(32,1000,2)"], file, None) == [
        ["report.title=a", "++a.images=32"],
        ["report.title=a", "++a.images=1000"],
        ["report.title=b", "a.seed=null", "++a.images=32"],
        ["report.title=b", "a.seed=null", "++a.images=1000"],
    ]
    found = points(["a=log(1e-4,1e-2,3)", "b=1,1"], None, None)
    assert found == [["a=0.0001", "b=1"], ["a=0.001", "b=1"], ["a=0.01", "b=1"]]
    many = [f"{key}=range(0,100)" for key in "abcd"]
    drawn = points(many, None, 5)
    assert len({tuple(point) for point in drawn}) == 5 and drawn == points(many, None, 5)
    with pytest.raises(DarkroomError, match="100,000,000 points"):
        points(many, None, None)


def test_images_below_the_checkout_are_linked_and_left_alone(toy: Sandbox) -> None:
    """Of data under `dvc add`, and data that neither git nor DVC knows."""
    for name in ("first", "second"):
        (toy.root / "data" / name).rename(toy.root / f"data/own-{name}")
    part = {"source": "folder", "embeddings": "data/none"}
    toy.edit({"parts": {name: {**part, "path": f"data/own-{name}"} for name in ("first", "second")}})
    toy.dvc("add", "data/own-first")
    toy.run("git", "rm", "--quiet", "-r", "--cached", "data/first", "data/second")
    toy.run("git", "add", "params.yaml", "data/own-first.dvc", "data/.gitignore")
    toy.run("git", "commit", "--quiet", "--message", "own data")
    (toy.root / "data/own-first/new.txt").write_text("since `dvc add`")
    before = {path: path.read_bytes() for path in toy.root.glob("data/own-*/*")}
    toy.run(*SWEEP, "-S", "report.title=a")
    (point,) = (toy.root / ".darkroom/sweeps/s").glob("s-*")
    assert "since" in (point / "data/shards/first/shard").read_text()
    assert {path: path.read_bytes() for path in toy.root.glob("data/own-*/*")} == before
    toy.dvc("exp", "apply", "s-1")  # which itself restores data under `dvc add`
    assert all(path.read_bytes() == before[path] for path in toy.root.glob("data/own-second/*"))
    assert not any(path.is_symlink() for path in toy.root.glob("data/*"))


@pytest.mark.slow
def test_sigterm_stops_a_sweep_which_continues(toy: Sandbox) -> None:
    with toy.start(*SWEEP, *FOUR) as run:
        wait_until(lambda: any(toy.root.glob(".darkroom/sweeps/s/s-1/.darkroom/state/train_extractor-*/images-*")))
        run.send_signal(signal.SIGTERM)
    assert run.returncode == 143
    toy.run(*SWEEP)
    assert locks(toy)["s-3"] == alone(toy, 90, 2, "a") and len(locks(toy)) == 4
