"""Which failed jobs Snakemake starts again."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "workflow"))
from darkroom.processes.launch import CONTINUES
from retries import limit_of, starts_again

ERROR = "trains\nerror: no images.\n"
KILLED = f"error: rank 1 of 2 was ended by SIGKILL. {CONTINUES}\n"


def leave(stage: str, checkpoint: str | None, log: str = "trains\n") -> None:
    """Write what an attempt leaves: a checkpoint in its state, and its log."""
    Path("logs").mkdir(exist_ok=True)
    Path(f"logs/{stage}.log").write_text(log)
    if checkpoint:
        Path(".darkroom/state", f"{stage}-0123456789abcdef", checkpoint).mkdir(parents=True)


@pytest.mark.parametrize(
    ("stage", "checkpoint", "log", "limit", "times"),
    [
        ("train_clip", "images-32", "trains\n", None, 1),
        ("train_clip", "images-32", KILLED, None, 1),
        ("train_clip", "images-32", ERROR, None, 0),
        ("train_clip", None, "trains\n", None, 0),
        ("sample_generator", "batches-0/0.npy", "sampled\n", None, 1),
        ("score_generator", None, "scores\n", None, 0),
        ("ingest", None, ERROR, None, 1),
        ("ingest", None, ERROR, 3, 3),
        ("score_generator", None, "scores\n", 3, 3),
        ("score_generator", None, ERROR, 3, 0),
        ("train_clip", "images-32", "trains\n", 0, 0),
        ("ingest", None, ERROR, 0, 0),
    ],
)
def test_a_stage_that_always_fails_in_one_way_is_started_again_so_often(
    stage: str,
    checkpoint: str | None,
    log: str,
    limit: int | None,
    times: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    leave(stage, checkpoint, log)
    seen: dict[tuple[str, int], list[str]] = {}
    again = [starts_again(stage, None, attempt, limit, seen) for attempt in range(1, 6)]
    assert again == [True] * times + [False] * (5 - times)


def test_a_training_that_goes_on_is_started_again_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    seen: dict[tuple[str, int], list[str]] = {}
    for attempt in range(1, 30):
        leave("train_decoder-base", f"images-{attempt}")
        assert starts_again("train_decoder", "base", attempt, None, seen)


@pytest.mark.parametrize(
    ("retries", "command", "limit"),
    [(0, "--cores 2", None), (0, "--retries=0", 0), (0, "-T 0", 0), (4, "--profile x", 4)],
)
def test_retries_of_a_profile_and_of_the_command_are_the_limit(retries: int, command: str, limit: int | None) -> None:
    assert limit_of(retries, ["snakemake", *command.split()]) == limit
