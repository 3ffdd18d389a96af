"""Each engine finds nothing to do after the other, and both make the same bytes."""

import sys
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

import pytest

from dag.sandbox import NOTHING, RESULTS, SAID, Sandbox


def test_snakemake_runs_each_body_once_and_leaves_nothing_for_dvc(by_snakemake: Sandbox) -> None:
    begun = sorted(line["stage"] for line in by_snakemake.history() if line["event"] == "start")
    assert begun == sorted(by_snakemake.stages())
    by_snakemake.assert_nothing_to_do()


def test_snakemake_ends_with_what_to_look_at_and_its_run_is_a_chart(by_snakemake: Sandbox) -> None:
    said = (by_snakemake.root.parent / SAID).read_text()
    assert "The page: reports/index.html" in said.split("(100%) done")[1]
    bodies = len(by_snakemake.stages()) - 1  # all but `code`
    assert f"{bodies} stages in" in by_snakemake.run(sys.executable, "-m", "darkroom", "times")


@pytest.mark.parametrize(("engine", "name"), [("snakemake", "report.zip"), ("dvc", "report.html")])
def test_snakemake_report_shows_page_scores_and_samples(
    made: dict[str, Sandbox], tmp_path: Path, engine: str, name: str
) -> None:
    made[engine].snakemake("--report", str(tmp_path / name))
    if name.endswith("zip"):
        with ZipFile(tmp_path / name) as file:
            text = file.read("report/report.html").decode()
            pictures = {sha256(file.read(entry)).hexdigest() for entry in file.namelist() if entry.endswith(".png")}
        assert made[engine].hashes("sample_generator")["samples/generator/grid.png"] in pictures
    else:
        text = (tmp_path / name).read_text()
    for path in ("reports/index.html", "metrics/generator.json", "samples/generator/grid.png"):
        assert f'"{path}"' in text
    for caption in (made[engine].root / "workflow/report").iterdir():
        assert caption.read_text().split(":")[0].strip() in text


def test_dvc_runs_each_body_once_and_leaves_nothing_for_snakemake(by_dvc: Sandbox) -> None:
    begun = sorted(line["stage"] for line in by_dvc.history() if line["event"] == "start")
    assert begun == sorted(by_dvc.stages())
    with by_dvc.bodies() as ran:
        assert NOTHING in by_dvc.snakemake("--dry-run")
        assert NOTHING in by_dvc.snakemake()
    assert ran == []


def test_both_engines_write_the_same_bytes(by_snakemake: Sandbox, by_dvc: Sandbox) -> None:
    one, other = by_snakemake.hashes(), by_dvc.hashes()
    assert one == other
    for made in ("data/shards/first/train/00000.tar", "models/generator/manifest.json", "metrics/generator.json"):
        assert made in one, f"{made} was not compared"
    # The order of the entries is that in which stages ended, and stays once dvc.lock is committed.
    assert by_snakemake.lock() == by_dvc.lock()


def test_parts_run_side_by_side(by_snakemake: Sandbox) -> None:
    times = {(line["stage"], line["event"]): line["time"] for line in by_snakemake.history()}
    first, second = "ingest@first", "ingest@second"
    assert times[first, "start"] < times[second, "end"]
    assert times[second, "start"] < times[first, "end"]


def test_a_run_leaves_only_results_uncommitted(by_snakemake: Sandbox) -> None:
    changed = by_snakemake.run("git", "status", "--porcelain").split("\n")
    assert {line[3:] for line in changed if line} == set(RESULTS)
