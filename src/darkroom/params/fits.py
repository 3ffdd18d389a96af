"""Checks that sections of params.yaml fit each other: helpers of each package's `fits`."""

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS


def refuse(sentence: str) -> NoReturn:
    """Raise a DarkroomError about values of params.yaml that do not fit."""
    raise DarkroomError(f"{PARAMS}: {sentence}")


def refuse_both(params: Any, key: str, other: str, remedy: str) -> NoReturn:
    """Raise a DarkroomError about two keys whose values do not fit; `remedy` calls them the former and the latter."""
    former, latter = (f"`{each}` is {_value(params, each)}" for each in (key, other))
    refuse(f"{former}, and {latter}{':' if remedy.startswith('set ') else ','} {remedy}.")


def _value(params: Any, key: str) -> Any:
    """Return the value under a dotted key, as YAML writes it."""
    for name in key.split("."):
        params = params[name] if isinstance(params, Mapping) else getattr(params, name)
    return json.dumps(params) if params is None or isinstance(params, bool) else params


def require_stored(params: Any, key: str, split: str) -> None:
    """Check that `embed_clip.store` lists the split that a key names."""
    if split not in params.embed_clip.store:
        refuse(f"`{key}` is {split}, but `embed_clip.store` does not list this split: add it there.")


def require_dropout(key: str, guidance: float, source: str, dropout: float) -> None:
    """Check that a network used with guidance (scale other than 1) is also trained without its condition.

    `key` names the guidance scale, `source` the fraction of conditions dropped in training.
    """
    if guidance != 1 and not dropout:
        refuse(
            f"`{key}` is {guidance}, but `{source}` is 0, so the network never learns the unconditional prediction "
            f"that guidance needs. Set `{source}` above 0, or `{key}` to 1.0."
        )


def fits(params: Any) -> None:
    """Check the parts of the tokenizer."""
    for part in params.train_tokenizer.parts or []:
        if part not in params.parts:
            refuse(
                f"`train_tokenizer.parts` names `{part}`, which is not under `parts` ({', '.join(params.parts)}). "
                "List only parts from there, or set it to null for all."
            )
