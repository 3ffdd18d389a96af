"""`darkroom check`: check that params.yaml and dvc.yaml are valid and fit each other, without torch."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_origin

from pydantic import BaseModel, create_model

from darkroom.artifacts.manifest import NAME, read_manifest
from darkroom.check import needs
from darkroom.dag.fingerprint.stages import OUT
from darkroom.dag.fingerprint.stages import STAGE as CODE
from darkroom.dag.hashable import require_hashable
from darkroom.dag.stages import FOREACH, STAGES, TRAININGS
from darkroom.data.layout import CATALOG, CATALOG_KIND
from darkroom.errors import DarkroomError
from darkroom.kinds import imported
from darkroom.models.clip.settings import fits as clip_fits
from darkroom.models.decoder.fits import fits as decoder_fits
from darkroom.models.evaluators.settings import fits as evaluators_fit
from darkroom.models.generators.fits import fits as generators_fit
from darkroom.models.prior.settings import fits as prior_fits
from darkroom.models.tokenizers.settings import fits as tokenizers_fit
from darkroom.params.fits import fits as data_fit
from darkroom.params.parts import settings_of
from darkroom.params.section import NO_FILE, PARAMS, Section, described, model_of, validate
from darkroom.params.stage import (
    DVC,
    OUTPUTS,
    address,
    cut,
    items,
    paths,
    read_yaml,
    related,
    resolve,
    scope,
    spread_over,
    stage_entry,
)
from darkroom.params.training import SharedTraining, with_shared

# Rules between two sections stand in the package of the section that reads the other.
_MODELS_FIT = (tokenizers_fit, generators_fit, decoder_fits, prior_fits, clip_fits, evaluators_fit)
FITS = (data_fit, *_MODELS_FIT, needs.fits)
COMMAND = "PYTHONPATH=src python -m darkroom"


def schema(stage: str) -> type[Section]:
    """Return the class that validates the parameters that dvc.yaml lists for a stage."""
    return imported(STAGES[stage].settings)


def whole() -> type[Section]:
    """Return the class that validates all of params.yaml: the sections of all stages, and `training`."""
    fields: dict[str, Any] = {"training": (SharedTraining, SharedTraining())}
    for stage in STAGES:
        for name, field in schema(stage).model_fields.items():
            if name not in fields or name == stage:  # a stage may see a part of another's section
                fields[name] = (field.annotation, field)
    return create_model("Whole", __base__=Section, **fields)


def validated(params: Mapping[str, Any]) -> Any:
    """Return all of params.yaml, with each training completed from the section `training`.

    Raises:
        DarkroomError: all faults, one per line.
    """
    shared = params.get("training") or {}
    validate(SharedTraining, shared, "training")
    trained = {
        name: with_shared(shared, section)
        for name, section in params.items()
        if name in TRAININGS and isinstance(section, Mapping)
    }
    return validate(whole(), {**params, **trained})


def read_params(path: Path = PARAMS) -> dict[str, Any]:
    """Return the values of params.yaml, with defaults for missing keys.

    Each stage's `training` is complete, and the section `training` therefore empty.

    Raises:
        DarkroomError: it is missing or not valid.
    """
    return completed(read_yaml(path))


def completed(params: Mapping[str, Any]) -> dict[str, Any]:
    """Validate values of params.yaml as `read_params` does.

    Raises:
        DarkroomError: they are not valid.
    """
    return {**validated(params).model_dump(mode="json"), "training": {}}


def _stage(stage: str, item: str | None, params: dict[str, Any], dvc: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Check one stage's command and parameters; return its dependencies and outputs."""
    entry = stage_entry(dvc, stage)
    names = scope(params, dvc, stage, item)
    command = f"{COMMAND} {stage}"  # without `${…}`: no value of params.yaml reaches a shell
    if (actual := entry["cmd"]) != command:
        raise DarkroomError(f"{DVC}: the command of {stage} is `{actual}`, but must be `{command}`.")
    code = f"{OUT}/{stage}.json"
    if stage != CODE and code not in entry.get("deps", []):
        raise DarkroomError(f"{DVC}: {stage} does not list {code}, the fingerprint of its code, under `deps`.")
    sliced = cut(stage, item, params, dvc)
    if stage not in sliced and stage in schema(stage).model_fields:
        raise DarkroomError(f"{DVC}: {stage} does not list its own section under `params`.")
    if "_misfits" in vars(schema(stage)) or not _covers(schema(stage), sliced):
        validate(schema(stage), sliced)
    return paths(entry, ["deps"], names), paths(entry, OUTPUTS, names)


def _covers(section: type[BaseModel], values: Mapping[str, Any]) -> bool:
    """Return whether `values`, valid as parts of params.yaml, are the keys of a section: all required, and no others.

    To build and run the validators of all stages takes a fifth of the time of `darkroom check`.
    """
    fields = section.model_fields
    if not values.keys() <= fields.keys() or any(fields[key].is_required() for key in fields.keys() - values.keys()):
        return False
    for key, value in values.items():
        inner, of_names = model_of(fields[key].annotation), get_origin(fields[key].annotation) is dict
        sections = value.values() if isinstance(value, Mapping) and of_names else [value]
        if inner and not all(_covers(inner, each) for each in sections if isinstance(each, Mapping)):
            return False
    return True


def _shape(dvc: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stages of dvc.yaml after checking that they are Darkroom's; DVC allows others."""
    stages = dvc.get("stages")
    if not isinstance(stages, dict):
        raise DarkroomError(f"{DVC}: `stages` must be a mapping of stages.")
    if differing := sorted(stages.keys() ^ STAGES.keys()):
        raise DarkroomError(f"{DVC}: these stages are unknown or missing: {', '.join(differing)}.")
    for name, stage in stages.items():
        entry = stage.get("do", stage) if isinstance(stage, dict) else {}
        if not isinstance(entry, dict) or not isinstance(entry.get("cmd"), str):
            raise DarkroomError(f"{DVC}: the stage `{name}` has no command (`cmd`).")
        for kind in ("params", "deps"):
            items = entry.get(kind, [])
            if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
                raise DarkroomError(f"{DVC}: `{kind}` of `{name}` must be a list of strings.")
        expected = f"${{{FOREACH[name]}}}" if name in FOREACH else None
        if (actual := stage.get("foreach")) != expected:
            raise DarkroomError(f"{DVC}: `foreach` of {name} is {actual or 'none'}, but must be {expected or 'none'}.")
    return stages


def _not_there(path: str, stage: str, item: str | None, params: Mapping[str, Any], dvc: Mapping[str, Any]) -> str:
    """Return a message about a dependency of a stage that does not exist and that no stage writes."""
    names = scope(params, dvc, stage, item)
    templates = [dep for dep in stage_entry(dvc, stage)["deps"] if re.fullmatch(r"\$\{[\w.]+\}", dep)]
    key = next((template[2:-1] for template in templates if resolve(template, names) == path), None)
    if key is None:
        return f"{DVC}: {address(stage, item)} depends on {path}, which does not exist and which no stage writes."
    key = key.replace("item.", f"{spread_over(dvc, stage)}.{item}.", 1)
    hint = described(whole(), tuple(key.split(".")))
    if stage == "ingest":
        page = "docs/how-to/choose-data.md"
        hint = ": `~` is not expanded, so write it out." if path.startswith("~") else f": see {page}."
    return f"{PARAMS}: `{key}` is {path}, which does not exist{hint}"


def _connected(params: dict[str, Any], dvc: dict[str, Any]) -> None:
    """Check each stage's entry, that no two write the same path, and that all dependencies exist or are outputs."""
    writers: dict[str, str] = {}
    needed: list[tuple[str, str | None, str]] = []
    for stage in STAGES:
        for item in items(params, dvc, stage):
            name = address(stage, item)
            deps, outs = _stage(stage, item, params, dvc)
            for out in outs:
                for path, writer in writers.items():
                    if related(out, path):
                        raise DarkroomError(f"{DVC}: {name} writes {out}, but {writer} writes {path}.")
                writers[out] = name
            needed += [(stage, item, dep) for dep in deps]
    for stage, item, dep in needed:
        own = next((out for out in writers if related(dep, out)), None)
        if stage == "ingest" and own and writers[own] != CODE:
            raise DarkroomError(
                f"{PARAMS}: `parts.{item}.path` is {dep}, but Darkroom writes {own}: use another folder."
            )
        if not any(related(dep, out) for out in writers) and not Path(dep).exists():
            raise DarkroomError(_not_there(dep, stage, item, params, dvc))


def check(params: dict[str, Any] | None = None, counted: bool = False) -> str:
    """Validate params.yaml, or values in its place, and dvc.yaml against the settings and each other.

    counted: also check against the images that `catalog` counted, if it has run. Images may have been added since.

    Returns:
        A line to print.

    Raises:
        DarkroomError: the first fault found, or all faults of params.yaml at once.
    """
    params, dvc = read_yaml(PARAMS) if params is None else params, read_yaml(DVC)
    whole_params = validated(params)
    for name, part in whole_params.parts.items():
        settings_of(name, part, params.get(part.source))
        if "embeddings" not in params["parts"][name]:  # dvc.yaml names it
            key = f"parts.{name}.embeddings"
            raise DarkroomError(f"{PARAMS}: `{key}` is missing{described(whole(), tuple(key.split('.')))}")
    stages = _shape(dvc)
    _connected(params, dvc)
    for fits in FITS:
        fits(whole_params)
    if counted and (CATALOG / NAME).is_file():
        manifest = read_manifest(CATALOG, CATALOG_KIND)
        needs.require(whole_params, manifest["images"], manifest["captions"], str(CATALOG))
    parts = len(params["parts"])
    counts = f"{len(stages)} stages, {parts} part{'s' * (parts > 1)}"
    return f"{counts}: {PARAMS} and {DVC} are valid and fit each other."


def check_sources() -> str:
    """Check that DVC can hash the folders and files that the parts name as `path`; params.yaml is valid.

    This is separate from `check`, which each stage repeats after DVC has hashed them. Returns a hint, or "".

    Raises:
        DarkroomError: lists what DVC cannot hash.
    """
    parts = read_yaml(PARAMS)["parts"]
    named = {Path(part.get("path", NO_FILE)): f"`parts.{name}.path`" for name, part in parts.items()}
    return require_hashable(named)
