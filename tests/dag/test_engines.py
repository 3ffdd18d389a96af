"""Each engine finds nothing to do after the other, and both make the same bytes."""

import shutil
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

import pytest

from dag.sandbox import ENGINES, NOTHING, RESULTS, Sandbox
from darkroom.dag import parents

CHAIN = ("ingest@first", "train_generator", "report")  # data, a training, a page; `make test-all`: all


def begun(sandbox: Sandbox) -> list[str]:
    return sorted(line["stage"] for line in sandbox.history() if line["event"] == "start")


def test_snakemake_runs_each_body_once_and_leaves_nothing_for_dvc(fresh: Sandbox) -> None:
    assert begun(fresh) == sorted(fresh.stages())
    times = {(line["stage"], line["event"]): line["time"] for line in fresh.history()}
    fresh.assert_nothing_to_do()
    first, second = "ingest@first", "ingest@second"
    assert times[first, "start"] < times[second, "end"] and times[second, "start"] < times[first, "end"]


def test_snakemake_ends_with_what_to_look_at_and_leaves_only_results_uncommitted(committed: Sandbox) -> None:
    said, status = ((committed.root.parent / name).read_text() for name in ("said.txt", "status.txt"))
    assert "The page: reports/index.html" in said.split("(100%) done")[1]
    assert {line[3:] for line in status.splitlines()} == set(RESULTS)
    bodies = len(begun(committed)) - 1  # all but `code`
    assert f"{bodies} stages in" in committed.darkroom("times")


def test_snakemake_report_shows_page_scores_and_samples(fresh: Sandbox, tmp_path: Path) -> None:
    fresh.snakemake("--report", str(tmp_path / "report.zip"))
    with ZipFile(tmp_path / "report.zip") as file:
        text = file.read("report/report.html").decode()
        pictures = {sha256(file.read(entry)).hexdigest() for entry in file.namelist() if entry.endswith(".png")}
    assert fresh.hashes("sample_generator")["samples/generator/grid.png"] in pictures
    for path in ("reports/index.html", "metrics/generator.json", "samples/generator/grid.png"):
        assert f'"{path}"' in text
    for caption in (fresh.root / "workflow/report").iterdir():
        assert caption.read_text().split(":")[0].strip() in text


@pytest.mark.parametrize("stages", [CHAIN, pytest.param((), marks=pytest.mark.slow)], ids=["chain", "all"])
def test_dvc_makes_the_same_bytes(committed: Sandbox, fresh: Sandbox, stages: tuple[str, ...]) -> None:
    """Here DVC starts a new process for each stage; for Snakemake, parents forked them."""
    shutil.rmtree(fresh.root / ".dvc/cache/runs")
    fresh.environment[parents.NAME] = ""
    ran = fresh.ran("dvc", "repro", "--force", *(("--single-item", *stages) if stages else ()))
    assert set(ran) == set(stages or fresh.stages()) - {"code"} and len(ran) == len(set(ran))
    assert fresh.hashes() == committed.hashes()
    assert fresh.lock() == committed.lock()
    assert NOTHING in fresh.snakemake("--dry-run")


def test_the_toy_through_dvc_is_the_toy_through_snakemake(toy_made: Sandbox, tmp_path: Path) -> None:
    """The order of the entries of dvc.lock is that in which stages ended, and stays once it is committed."""
    other = Sandbox.clone_toy(tmp_path / "clone")
    other.dvc("repro")
    assert begun(other) == begun(toy_made) == sorted(other.stages())
    assert other.hashes() == toy_made.hashes() and other.lock() == toy_made.lock()
    assert other.ran(*ENGINES["snakemake"]) == []
