"""`darkroom STAGE --dry-run`: what a training would do, without doing it. Loads no torch and writes nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from darkroom.check.check import check, schema
from darkroom.params.run import Run
from darkroom.params.section import NO_FILE, Section, validate
from darkroom.params.stage import OUTPUTS, given
from darkroom.params.training import Training, learning_rate
from darkroom.training.changed_code import choose, code_of
from darkroom.training.state import FINISHED, declared, fingerprint, folder_of, identity, is_code, stable_folder


def dry_run(stage: str, item: str | None = None) -> str:
    """Return the resolved parameters of a training as YAML, and as comments in it what follows from them.

    Raises:
        DarkroomError: params.yaml or dvc.yaml is not valid.
    """
    check()
    params: Any = validate(schema(stage), given(stage, item))
    section = getattr(params, stage)
    settings = getattr(section, "own_training", section.training) if item is None else section.training_of(item)
    deps, outs = declared(stage, item, ["deps"]), declared(stage, item, OUTPUTS)
    if idle := getattr(params, "idle", None):
        return _text(params, [f"trains nothing: {idle}", f"writes: {', '.join(outs)}"])
    lines = [
        *_work(settings, params.run, getattr(getattr(section, "chosen", None), "whole_batch", False)),
        f"device: {params.run.device}",
        *_state(stage, item, deps, settings, params.run),
    ]
    inputs = [dep for dep in deps if not is_code(dep) and dep != NO_FILE]
    lines += [f"reads: {', '.join(inputs)}", f"writes: {', '.join(outs)}"]
    return _text(params, lines)


def _text(params: Section, lines: list[str]) -> str:
    """Return parameters as YAML, and lines below them as comments."""
    told = "".join(f"# {line}\n" for line in lines)
    return yaml.safe_dump(params.model_dump(mode="json"), sort_keys=False, allow_unicode=True) + "\n" + told


def _work(settings: Training, run: Run, whole: bool) -> Iterator[str]:
    """Yield how many updates there are, how each is shared, and how fast it learns.

    whole: whether a loss is of the batch as a whole, which `run.micro_batch` does not cut.
    """
    updates, share = settings.images // settings.batch, settings.batch // settings.processes
    yield f"updates: {updates:,} of {settings.batch:,} images"
    pieces = 1 if whole else -(-share // (run.micro_batch or share))
    passes = "one pass" if pieces == 1 else f"{pieces} passes of at most {run.micro_batch:,}"
    yield f"processes: {settings.processes}, each with {share:,} images of an update, in {passes}"
    rates = [learning_rate(settings, images) for images in (0, settings.warmup, settings.images - settings.batch)]
    yield (
        f"learning rate: {rates[0]:.4g} at image 0, {rates[1]:.4g} after the warm-up at image {settings.warmup:,}, "
        f"{rates[2]:.4g} at the last update"
    )


def _state(stage: str, item: str | None, deps: list[str], settings: Training, run: Run) -> Iterator[str]:
    """Yield where the state lies, and where the training would begin."""
    missing = [dep for dep in deps if not is_code(dep) and not Path(dep).exists()]
    if missing:
        yield f"state: follows from the inputs, and these are not there yet: {', '.join(missing)}"
        return
    folder = folder_of(stage, item)
    yield f"state: {folder}"
    found = [path for place in ("images-*", "code-*/images-*") for path in folder.glob(place) if path.is_dir()]
    code = fingerprint(stage, item)
    best = choose(found, code, run.changed_code)
    if best is None:
        # Trainings that differ in length alone share the checkpoints before the decay of the shorter one.
        folders = (
            stable_folder(stage, item, identity(stage, item)).glob("images-*") if settings.schedule == "wsd" else ()
        )
        shared = [int(path.name.removeprefix("images-")) for path in folders]
        if shared := [images for images in shared if images <= settings.decay_start]:
            yield f"begins: at image {max(shared):,}, where the decay of a shorter training began, of the same code"
            return
        others = f"no checkpoint of this code, {len(found)} of other code" if found else "no checkpoint"
        yield f"begins: at image 0, there is {others}"
        return
    images = int(best.name.removeprefix("images-"))
    if (folder / FINISHED).exists() and best.parent == folder:
        yield f"begins: at its end, {best.name} is the last checkpoint of a finished training"
    else:
        other = "" if code_of(best) == code else ", written by other code"
        yield f"begins: at image {images:,} of {settings.images:,}, from {best.name}{other}"
