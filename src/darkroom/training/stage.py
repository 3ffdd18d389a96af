"""Shared code of the `train_*` stages: open inputs, train, and write a model with its manifest and curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from darkroom.artifacts.atomic import atomic_folder, require_writable
from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.params.run import Run
from darkroom.params.stage import file_name
from darkroom.params.training import Training
from darkroom.processes.launch import rank
from darkroom.training.curves import write_curves
from darkroom.training.state import open_state

if TYPE_CHECKING:
    import torch

    from darkroom.training.recipe import Recipe
    from darkroom.training.train_state import TrainState

# From a recipe, its settings, the section `run` and the places of a training (`OutputPaths`) to its end: the loop.
Train = Callable[["Recipe", Training, Run, Any], "TrainState"]
LOGS = Path("logs")
NOT_TRAINED = {"images_seen": 0, "selected": "last", "best_validation": None}  # in the manifest of imported weights


@dataclass(frozen=True)
class Job:
    """A model with its inputs open, before it is trained.

    save: writes the current model to a folder; returns entries for the manifest.
    metadata: of the manifest, in addition to the entries of every training.
    recipe: what is trained; None: the weights are written untrained, and the curves have no point.
    raw: whether the raw weights are also written, to `raw/`.
    kept_weights: whether the weights of `save_every` are also written.
    prepare: called with the state folder before the training.
    measure: called while the model has its averaged weights; returns entries for the manifest.
    finish: called when the model is written.
    """

    save: Callable[[Path], Mapping[str, Any] | None]
    metadata: Mapping[str, Any]
    recipe: Recipe | None = None
    raw: bool = False
    kept_weights: bool = False
    prepare: Callable[[Path], object] | None = None
    measure: Callable[[], Mapping[str, Any]] | None = None
    finish: Callable[[], object] | None = None


def run_training(
    stage: str,
    training: Training,
    run: Run,
    open_job: Callable[[torch.device], Job],
    train: Train | None = None,
    idle: str | None = None,
    consequence: str = "",
    item: str | None = None,
) -> None:
    """Train a model and write it; with several processes, the first one writes.

    The stage `train_X` writes models/X, a manifest of the kind X, and curves/X.

    Args:
        stage: its name.
        training: its settings.
        run: the section `run`.
        open_job: opens the inputs, given the device of the training.
        train: another loop than `darkroom.training.loop.train`, as `darkroom plan` and `tune` pass.
        idle: why nothing is trained; None: something is trained.
        consequence: what follows from that, for the message.
        item: the U-Net of a stage that runs once for each, with its own subfolders; None: it runs once.

    Raises:
        DarkroomError: an output cannot be written, an input does not fit, the loss is not finite, out of memory.
        SystemExit: after SIGTERM or Ctrl-C, with a checkpoint written.
    """
    kind = stage.removeprefix("train_")
    out, curves = Path("models", kind, item or ""), Path("curves", kind, item or "")
    for path in (out, curves):
        require_writable(path)
    if idle is not None:
        if _leads():
            write_curves(curves, [])
            with atomic_folder(out) as folder:
                write_manifest(folder, kind, trained=False, reason=idle, files={})
            print(f"{idle}: {consequence}")
        return
    # Imported here: a stage that trains nothing needs no torch.
    from darkroom.device import set_up_device
    from darkroom.training.loop import train as loop
    from darkroom.training.start import OutputPaths

    with open_state(stage, item) as folder:
        job = open_job(set_up_device(training.threads, run.device))
        if job.recipe is None:
            if _leads():
                write_curves(curves, [])
                _write(out, kind, job)
            return
        if job.prepare is not None and _leads():
            job.prepare(folder)
        state = (train or loop)(job.recipe, training, run, OutputPaths(folder, curves, LOGS / file_name(stage, item)))
        _write(out, kind, job, state, folder)


def _write(out: Path, kind: str, job: Job, state: TrainState | None = None, place: Path | None = None) -> None:
    """Write the model with its manifest, and finish."""
    metadata = dict(job.metadata)
    with atomic_folder(out) as folder:
        if state is None or place is None:
            for target in (folder / "raw", folder) if job.raw else (folder,):
                metadata |= job.save(target) or {}
        else:
            metadata |= save_weights(state, place, folder, job)
            if job.measure is not None:
                with state.averaged():
                    metadata |= job.measure()
            metadata |= state.metadata()
        write_manifest(folder, kind, **metadata, files=file_hashes(folder))
    if job.finish is not None:
        job.finish()


def save_weights(state: TrainState, place: Path, folder: Path, job: Job) -> Mapping[str, Any]:
    """Write the weights of a training with the state folder `place` to the folder of a model.

    These are the averaged weights; with `job.raw` also raw ones, to `raw/`; and with `job.kept_weights` also
    those of `save_every`, to `checkpoints/images-N/` and its `raw/`. Returns the result of `job.save` for the former.

    Raises:
        DarkroomError: weights that `save_every` kept are missing or damaged.
    """
    from darkroom.training.averages import kept_folder, read_kept

    if job.raw:
        job.save(folder / "raw")
    with state.averaged():
        metadata = job.save(folder) or {}
    for images in state.settings.kept_images if job.kept_weights else ():
        weights, target = read_kept(place, images), kept_folder(folder, images)
        for name, to in (("raw", target / "raw"), ("averaged", target)):
            with state.ema.applied(weights[name]):
                job.save(to)
    return metadata


def _leads() -> bool:
    """Return whether this process is the only one, or the first of several."""
    place = rank()
    return place is None or place.number == 0
