"""Under which keys of params.yaml a training's settings stand. Loads no torch."""

from collections.abc import Mapping
from typing import Any

from darkroom.dag.stages import FOREACH
from darkroom.params.kinds import OWN_TRAINING

RUN_KEYS = ("micro_batch", "workers", "activation_checkpointing")  # of `run`, which all trainings share
KEYS = ("threads", "precision", "tf32", "channels_last", "compile", *RUN_KEYS)


def is_shared(name: str, key: str) -> bool:
    """Return whether a key of a training is also that of others: of all by `run`, or of all U-Nets."""
    return key in RUN_KEYS or ("@" in name and key not in OWN_TRAINING)


def key_of(name: str, key: str, params: Mapping[str, Any]) -> str:
    """Return the dotted key of params.yaml that decides a setting of a training.

    Args:
        name: of the stage, or of one of its items (STAGE@ITEM).
        key: one of KEYS.
        params: what params.yaml says, without defaults.
    """
    if key in RUN_KEYS:
        return f"run.{key}"
    stage, _, item = name.partition("@")
    if item and key in OWN_TRAINING:
        return f"{FOREACH[stage]}.{item}.training.{key}"
    section = params.get(stage) or {}
    kind = section.get("kind", section.get("source"))
    own = (section.get(kind) or {}).get("training") or {} if isinstance(kind, str) else {}
    return f"{stage}.{kind}.training.{key}" if key in own else f"{stage}.training.{key}"
