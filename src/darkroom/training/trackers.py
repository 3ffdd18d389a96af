"""Log to TensorBoard and Weights & Biases through accelerate. By default nothing leaves the machine."""

# No effect on any output: copies records to TensorBoard and Weights & Biases

import importlib.util
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import Accelerator
from accelerate.tracking import GeneralTracker, TensorBoardTracker, WandBTracker
from numpy.typing import NDArray
from PIL import Image

from darkroom.data.grid import opaque
from darkroom.data.images import to_array, to_pil
from darkroom.errors import DarkroomError
from darkroom.params.stage import leaves
from darkroom.training.curves import Record

_BINS = 512  # maximum bins of a histogram in Weights & Biases


def start_trackers(
    accelerator: Accelerator, trackers: Sequence[str], folder: Path, stage: str, work: str, images: int
) -> None:
    """Open the trackers that `run.trackers` names.

    They write to `folder`. `work` identifies this training, also after a restart; records of an earlier start
    beyond `images` are not shown twice.

    Weights & Biases stays offline unless WANDB_MODE says otherwise: `wandb sync` sends a run afterwards. Each start of
    a training writes its own run folder; they share one id, so they form one run.

    Raises:
        DarkroomError: a tracker is not installed.
    """
    for name in trackers:
        if importlib.util.find_spec(name) is None:
            raise DarkroomError(f"`run.trackers` names {name}: install it with `pip install {name}`, or remove it.")
    if not trackers:
        return
    folder.mkdir(parents=True, exist_ok=True)
    mode = os.environ.get("WANDB_MODE", "offline")
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # otherwise it sends error reports, also offline
    factories: dict[str, Callable[[], GeneralTracker]] = {
        # TensorBoard hides the records of earlier event files from this step on.
        "tensorboard": lambda: TensorBoardTracker(work, folder, purge_step=images + 1 if images else 0),
        "wandb": lambda: WandBTracker(
            stage, id=work, name=work, dir=str(folder), mode=mode, resume="allow", settings={"quiet": True}
        ),
    }
    accelerator.log_with = [factories[name]() for name in trackers]
    accelerator.init_trackers(stage)


def _each(accelerator: Accelerator, write: Callable[[GeneralTracker], None]) -> None:
    """Write to every tracker; one that fails is reported and removed, and the training continues."""
    for tracker in list(accelerator.trackers):
        try:
            write(tracker)
        except Exception as error:
            accelerator.trackers.remove(tracker)
            print(f"{tracker.name} failed, so the training goes on without it: {error}")


def log_parameters(accelerator: Accelerator, parameters: Mapping[str, Any]) -> None:
    """Log the parameters of a training to every tracker as hyperparameters, nested ones as SECTION.KEY.

    TensorBoard shows them in the run `WORK/hyperparameters`; lists and null are written as JSON.
    """
    plain = bool | int | float | str
    values = {name: each if isinstance(each, plain) else json.dumps(each) for name, each in leaves(parameters)}
    if not values:
        return

    def write(tracker: GeneralTracker) -> None:
        if isinstance(tracker, TensorBoardTracker):
            tracker.writer.add_hparams(values, {}, run_name="hyperparameters")
        else:
            tracker.store_init_configuration(values)

    _each(accelerator, write)


def log_model(accelerator: Accelerator, stage: str, weights: Path) -> None:
    """Log a file of weights to Weights & Biases as the artifact `STAGE-model`; TensorBoard has none."""

    def write(tracker: GeneralTracker) -> None:
        if isinstance(tracker, WandBTracker):
            import wandb

            artifact = wandb.Artifact(f"{stage}-model", type="model")
            artifact.add_file(str(weights))
            tracker.run.log_artifact(artifact)

    _each(accelerator, write)


def log_record(accelerator: Accelerator, record: Record) -> None:
    """Log a record to every tracker; the step is its images seen."""
    _each(accelerator, lambda tracker: tracker.log(record, step=record["images"]))


def log_images(accelerator: Accelerator, name: str, picture: Path, step: int) -> None:
    """Log a picture, such as a grid of samples, to every tracker.

    `name` is its name in the trackers; `step`, images seen, must not be below the last logged step, or Weights & Biases
    drops it. The picture is shown as RGB, what is transparent over a checkerboard.
    """
    if not accelerator.trackers:
        return
    with Image.open(picture) as image:
        pixels = np.asarray(to_pil(opaque(to_array(image)[None])[0]).convert("RGB"))  # (H, W, 3)

    def write(tracker: GeneralTracker) -> None:
        options: dict[str, Any] = {"dataformats": "NHWC"} if tracker.name == "tensorboard" else {}
        tracker.log_images({name: pixels[None]}, step=step, **options)

    _each(accelerator, write)


def log_histogram(accelerator: Accelerator, name: str, counts: NDArray[np.int64], step: int) -> None:
    """Log a histogram of the values 0, 1, …, len(counts) - 1 to every tracker, in at most 512 bins of equal width.

    `counts` has one entry per value, (K,); see `log_images` for the others.
    """
    if not accelerator.trackers:
        return
    width = -(-len(counts) // _BINS)
    values, edges = np.arange(len(counts)), np.arange(0, len(counts) + width, width)  # the last bin may reach beyond
    binned, _ = np.histogram(values, bins=edges, weights=counts)

    def write(tracker: GeneralTracker) -> None:
        if tracker.name == "wandb":
            from wandb import Histogram

            tracker.log({name: Histogram(np_histogram=(binned, edges))}, step=step)
        else:
            tracker.writer.add_histogram_raw(
                name,
                min=float(values[counts > 0].min(initial=len(counts))),
                max=float(values[counts > 0].max(initial=0)),
                num=int(counts.sum()),
                sum=float(counts @ values),
                sum_squares=float(counts @ values**2),
                bucket_limits=edges[1:].tolist(),
                bucket_counts=binned.tolist(),
                global_step=step,
            )

    _each(accelerator, write)


def stop_trackers(accelerator: Accelerator) -> None:
    """Flush every tracker."""
    _each(accelerator, lambda tracker: tracker.finish())
    accelerator.trackers.clear()
