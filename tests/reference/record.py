"""Records the reference curves anew: `python tests/reference/record.py [PRESET …]`, on a machine that does little else.

Whole curves come from the real stages, by `dvc repro` in a clone of the working tree; the prefix from the bodies of the
real stages, stopped after a few updates. A new record hides what changed the bits, so it is made only for a change that
was meant to change them (docs/results/training.md).
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
sys.path[:0] = [str(ROOT / "src"), str(TESTS)]

from reference import curves  # noqa: E402

# Updates of the prefix. train_generator learns the latents of the tokenizer as it is after its own few updates.
PREFIX = {"train_tokenizer": 40, "train_extractor": 20, "train_generator": 40}
WAITING = {"OMP_WAIT_POLICY": "passive"}  # beside other work, a thread that waits must not spin; the bits are the same
_OFF = {"run": {"device": "cpu", "grid_every": 0, "workers": 0, "trackers": []}}  # changes no result
THREADS = 2  # of the trainings as recorded, whatever params.yaml says
_SECTIONS = {"train_tokenizer": "training", "train_extractor": "training", "train_generator": "training"}


def whole(preset: str, root: Path, threads: int = THREADS) -> tuple[dict[str, curves.Rows], dict[str, Any]]:
    """Train a preset with DVC in a clone under `root`; return the curves of its trainings, and its scores.

    Args:
        preset: a name of presets/.
        root: where the clone goes.
        threads: CPU threads of the trainings; other ones show how far rounding carries.
    """
    from dag.sandbox import Sandbox

    sandbox = Sandbox.clone(root)  # with the tiny configuration, which goes
    shutil.copy(ROOT / "params.yaml", root)
    sandbox.environment |= {"PYTHONPATH": "src", **WAITING}
    sandbox.run(sys.executable, "-m", "darkroom", "preset", preset)
    sandbox.edit(_OFF)
    sandbox.edit({stage: {section: {"threads": threads}} for stage, section in _SECTIONS.items()})
    sandbox.dvc("repro", "score_generator")  # and what it needs: all three trainings
    found = {stage: curves.of_stage(root / "curves" / name) for stage, name in curves.TRAININGS.items()}
    return found, json.loads((root / "metrics/generator.json").read_text())


def prefix(root: Path, threads: int = THREADS) -> dict[str, curves.Rows]:
    """Run the first updates of `digits` in a process of its own under `root`; return their curves."""
    command = [sys.executable, __file__, "--prefix-in", str(root), "--threads", str(threads)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | WAITING
    )
    if done.returncode:
        raise RuntimeError(done.stdout[-6000:])
    return {stage: curves.of_stage(root / "curves" / name) for stage, name in curves.TRAININGS.items()}


def _train_prefix(root: Path, threads: int) -> None:
    """Run the bodies of the stages up to train_generator here, with trainings that end after a few updates."""
    import yaml

    from dag.sandbox import overlay
    from darkroom.check.check import read_params
    from darkroom.tools.preset import laid_over
    from darkroom.tools.preset import overlay as of_preset

    root.mkdir(parents=True, exist_ok=True)
    for name in ("dvc.yaml", "src", "docs", "presets"):
        (root / name).symlink_to(ROOT / name)
    (root / "data").mkdir()
    (root / "data/none").touch()
    os.chdir(root)
    (root / "params.yaml").write_text(laid_over((ROOT / "params.yaml").read_text(), of_preset("digits")))
    values = read_params()
    overlay(values, _OFF)
    overlay(values, {"train_generator": {"training": {"log_every": values["train_generator"]["training"]["batch"]}}})
    overlay(values, {stage: {section: {"threads": threads}} for stage, section in _SECTIONS.items()})
    (root / "params.yaml").write_text(yaml.safe_dump(values, sort_keys=False))

    from darkroom.environment import choose_device, set_threads

    set_threads(values["train_generator"]["training"]["threads"])  # the same in all trainings; torch is told by each
    choose_device("cpu")

    import importlib

    from darkroom.check.check import schema
    from darkroom.dag.fingerprint.following import Sources
    from darkroom.data import catalog_writer
    from darkroom.params.section import validate
    from darkroom.params.stage import stage_params
    from darkroom.training import loop, state

    # These change no loss: share one parse of the source between trainings, and skip the distances between images.
    sources = Sources(state.SOURCE)
    state.Sources = lambda folder: sources  # type: ignore[assignment, misc]
    catalog_writer.measure_leakage = lambda *_: None  # type: ignore[assignment]

    batches = loop.remaining_batches

    def run(stage: str, part: str | None = None) -> None:
        loop.remaining_batches = lambda state: islice(batches(state), PREFIX.get(stage))  # type: ignore[assignment]
        body = importlib.import_module(f"darkroom.stages.{stage}").run
        params = validate(schema(stage), stage_params(stage, part))
        body(params, part) if part else body(params)

    parts = list(values["parts"])
    for part in parts:
        run("ingest", part)
    for stage in ("catalog", "train_tokenizer", "train_extractor"):
        run(stage)
    for part in parts:
        run("encode_latents", part)
    run("train_generator")


def main() -> None:
    """Record what the command line names, or all of it."""
    from reference.machine import machine

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("presets", nargs="*", help=f"of {', '.join(curves.PRESETS)}, and digits-prefix; all of them")
    parser.add_argument(
        "--threads", type=int, default=THREADS, help="of the trainings, to see how far rounding carries"
    )
    parser.add_argument("--to", type=Path, default=curves.RECORDED, help="where the curves go")
    parser.add_argument("--prefix-in", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.prefix_in:
        _train_prefix(options.prefix_in, options.threads)
        return
    for name in options.presets or ["digits-prefix", *curves.PRESETS]:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / "clone"
            if name == "digits-prefix":
                found, scores = prefix(root, options.threads), {}
            else:
                found, scores = whole(name, root, options.threads)
        for stage, rows in found.items():
            curves.write(options.to / name / f"{stage}.tsv", rows)
        metadata = {"machine": machine(), "scores": scores}
        (options.to / name / "recorded.json").write_text(json.dumps(metadata, indent=2, ensure_ascii=False) + "\n")
        print(f"{options.to / name}: {', '.join(found)}  {scores}")


if __name__ == "__main__":
    main()
