"""Keys of params.yaml that were called otherwise before, each with its name of today."""

from collections.abc import Iterator, Mapping
from typing import Any

from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS

# The most specific old name counts for a key: what lies below a section is renamed with it.
RENAMED = {
    "ingest.max_quarantined": "catalog.max_quarantined",
    "score_dit": "score_generator",
    "sample_dit": "sample_generator.common",
    "sample_dit.guidance": "sample_generator.dit.guidance",
    "sample_dit.solver": "sample_generator.dit.solver",
    "sample_dit.steps": "sample_generator.dit.steps",
    "train_decoder.common": "train_decoder.training",
    "train_dit": "train_generator",
    "train_dit.diffusion": "train_generator.dit.diffusion",
    "train_dit.evaluate": "train_generator.evaluate",
    "train_dit.evaluate.guidance": "train_generator.dit.sampling.guidance",
    "train_dit.evaluate.solver": "train_generator.dit.sampling.solver",
    "train_dit.evaluate.steps": "train_generator.dit.sampling.steps",
    "train_dit.model": "train_generator.dit.model",
    "train_dit.training": "train_generator.training",
    "train_generator.dit.diffusion.learned_variance": "train_generator.dit.diffusion.variance",
    "train_prior.diffusion.learned_variance": "train_prior.diffusion.variance",
    "train_tokenizer.common": "train_tokenizer.training",
}


def require_new_names(params: Mapping[str, Any]) -> None:
    """Check that no key has a name of before.

    Raises:
        DarkroomError: one sentence for each old name, with the new one.
    """
    found = [name for key in _leaves(params) if (name := _old_name(key)) is not None]
    if found:
        lines = [f"{PARAMS}: `{old}` is now `{RENAMED[old]}`: write it there." for old in dict.fromkeys(found)]
        raise DarkroomError("\n".join(lines))


def new_name(key: str) -> str | None:
    """Return the name of today of a key of before; None where the key has none."""
    old = _old_name(key)
    return None if old is None else f"{RENAMED[old]}{key.removeprefix(old)}"


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _old_name(key: str) -> str | None:
    """Return the longest old name that a key is, or lies below."""
    return max((old for old in RENAMED if f"{key}.".startswith(f"{old}.")), key=len, default=None)
