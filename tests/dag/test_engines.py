"""Each engine finds nothing to do after the other, and both make the same bytes."""

import shutil
import sys
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

import pytest

from dag.sandbox import NOTHING, RESULTS, SAID, Sandbox

# A stage of each kind: a source, a training of images, an encoder, a training of latents, a sampler, a scorer, a page.
CHAIN = ("ingest@first", "train_tokenizer", "encode_latents@first", "train_generator", "sample_generator")
CHAIN += ("score_generator", "report")


def begun(sandbox: Sandbox) -> list[str]:
    return sorted(line["stage"] for line in sandbox.history() if line["event"] == "start")


def test_snakemake_runs_each_body_once_and_leaves_nothing_for_dvc(committed: Sandbox) -> None:
    assert begun(committed) == sorted(committed.stages())
    committed.assert_nothing_to_do()
    times = {(line["stage"], line["event"]): line["time"] for line in committed.history()}
    first, second = "ingest@first", "ingest@second"
    assert times[first, "start"] < times[second, "end"] and times[second, "start"] < times[first, "end"]


def test_snakemake_ends_with_what_to_look_at_and_leaves_only_results_uncommitted(committed: Sandbox) -> None:
    said, _, status = (committed.root.parent / SAID).read_text().rpartition("darkroom times` says what took how long.\n")
    assert "The page: reports/index.html" in said.split("(100%) done")[1]
    assert {line.split(maxsplit=1)[1] for line in status.splitlines() if line[2:3] == " "} == set(RESULTS)
    bodies = len(committed.stages()) - 1  # all but `code`
    assert f"{bodies} stages in" in committed.run(sys.executable, "-m", "darkroom", "times")


def test_snakemake_report_shows_page_scores_and_samples(committed: Sandbox, tmp_path: Path) -> None:
    committed.snakemake("--report", str(tmp_path / "report.zip"))
    with ZipFile(tmp_path / "report.zip") as file:
        text = file.read("report/report.html").decode()
        pictures = {sha256(file.read(entry)).hexdigest() for entry in file.namelist() if entry.endswith(".png")}
    assert committed.hashes("sample_generator")["samples/generator/grid.png"] in pictures
    for path in ("reports/index.html", "metrics/generator.json", "samples/generator/grid.png"):
        assert f'"{path}"' in text
    for caption in (committed.root / "workflow/report").iterdir():
        assert caption.read_text().split(":")[0].strip() in text


@pytest.mark.parametrize("stages", [CHAIN, pytest.param((), marks=pytest.mark.slow)], ids=["chain", "all"])
def test_dvc_makes_the_same_bytes(committed: Sandbox, fresh: Sandbox, stages: tuple[str, ...]) -> None:
    shutil.rmtree(fresh.root / ".dvc/cache/runs")
    ran = fresh.ran("dvc", "repro", "--force", *(("--single-item", *stages) if stages else ()))
    assert set(ran) == set(stages or fresh.stages()) - {"code"} and len(ran) == len(set(ran))
    assert fresh.hashes() == committed.hashes()
    assert fresh.lock() == committed.lock()
    assert NOTHING in fresh.snakemake("--dry-run")


def test_a_picture_of_the_data_trains_nothing(fresh: Sandbox) -> None:
    fresh.edit({"catalog": {"grid_images": 2}})
    assert fresh.ran("dvc", "repro") == ["catalog", "report"]


def test_the_toy_through_dvc_is_the_toy_through_snakemake(toy_made: Sandbox, tmp_path: Path) -> None:
    """The order of the entries of dvc.lock is that in which stages ended, and stays once it is committed."""
    other = Sandbox.clone_toy(tmp_path / "clone")
    other.dvc("repro")
    assert begun(other) == begun(toy_made) == sorted(other.stages())
    assert other.hashes() == toy_made.hashes() and other.lock() == toy_made.lock()
    assert other.ran(*"snakemake --cores 2".split()) == []
