"""Whether sections of params.yaml fit each other: what each room's `fits` needs, checks of the data, keys of before."""

import json
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, NoReturn

from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS


def refuse(sentence: str) -> NoReturn:
    """Raise the error of a value that does not fit another."""
    raise DarkroomError(f"{PARAMS}: {sentence}")


def refuse_both(params: Any, key: str, other: str, remedy: str) -> NoReturn:
    """Raise the error of two keys whose values do not fit; `remedy` calls them the former and the latter."""
    former, latter = (f"`{each}` is {_value(params, each)}" for each in (key, other))
    refuse(f"{former}, and {latter}{':' if remedy.startswith('set ') else ','} {remedy}.")


def _value(params: Any, key: str) -> Any:
    """Return the value under a dotted key, as YAML writes it."""
    for name in key.split("."):
        params = params[name] if isinstance(params, Mapping) else getattr(params, name)
    return json.dumps(params) if params is None or isinstance(params, bool) else params


def require_stored(params: Any, key: str, split: str) -> None:
    """Check that the embeddings of the split that a key names are stored."""
    if split not in params.embed_clip.store:
        refuse(f"`{key}` is {split}, whose embeddings `embed_clip.store` leaves out: name it there.")


def require_dropout(key: str, guidance: float, source: str, dropout: float) -> None:
    """Check that a guided network (of scale 1: none) learns the unconditional prediction, its condition dropped.

    `key` is that of the scale, `source` that of the fraction of conditions dropped in training.
    """
    if guidance != 1 and not dropout:
        refuse(
            f"`{key}` is {guidance}, and `{source}` is 0, so the network never learns the unconditional prediction, "
            "from which guidance leads away: set it above 0, or the guidance to 1.0."
        )


def fits(params: Any) -> None:
    """Check the parts of the tokenizer."""
    for part in params.train_tokenizer.parts or []:
        if part not in params.parts:
            refuse(
                f"`train_tokenizer.parts` names `{part}`, which is not under `parts` ({', '.join(params.parts)}): name "
                "those that it is trained on, or set it to null for all."
            )


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

# Keys of before in whose place nothing stands, as globs.
REMOVED = (
    *("*training.min_improvement", "*training.decay_images", "*training.groups", "*.diffusion.direction_weight"),
    "ingest.rules.wrong_extension",
    *("score_*.copies.pairs", "train_tokenizer.identity.trained", "train_tokenizer.pretrained.trained"),
    *(f"train_tokenizer.{kind}.grid_images" for kind in ("identity", "pretrained")),
)
# Those of features that went: what to do instead.
_INSTEAD = {
    **dict.fromkeys(
        ("urls", "urls.*", "run.img2dataset"),
        "start img2dataset yourself, and read what it writes with the source webdataset (docs/data.md)",
    ),
    **dict.fromkeys(
        (f"embed_clip.imported.{key}" for key in ("layout", "metadata", "column")),
        "embeddings are read in DALLE2-pytorch's layout, which embedding-dataset-reordering writes (docs/clip.md)",
    ),
}


def require_new_names(params: Mapping[str, Any]) -> None:
    """Check that no key has a name of before, or is gone.

    Raises:
        DarkroomError: one sentence for each old name, with the new one or what to do.
    """
    leaves = list(_leaves(params))
    renamed = dict.fromkeys(name for key in leaves if (name := _old_name(key)) is not None)
    lines = [f"{PARAMS}: `{old}` is now `{RENAMED[old]}`: write it there." for old in renamed]
    gone = (key for key in leaves if any(fnmatchcase(key, glob) for glob in REMOVED))
    lines += [f"{PARAMS}: `{key}` was removed, and nothing reads it: take it out." for key in gone]
    instead = [(key, remedy) for key in leaves for glob, remedy in _INSTEAD.items() if fnmatchcase(key, glob)]
    lines += [f"{PARAMS}: `{key}` was removed: take it out; {remedy}." for key, remedy in instead]
    if lines:
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
