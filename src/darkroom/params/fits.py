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
    "run.at_risk": "run.max_lost_seconds",
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

# Keys of before in whose place nothing stands, as globs, and what to do instead.
_NOTHING = ", and nothing reads it: take it out"
_IMG2DATASET = "start img2dataset yourself, and read what it writes with the source webdataset (docs/data.md)"
_WIDTHS = "set `ema_decay` before the training, or keep weights on the way with `save_every`"
REMOVED = {
    **dict.fromkeys(("*training.min_improvement", "*training.decay_images", "*training.groups"), _NOTHING),
    **dict.fromkeys(("*.diffusion.direction_weight", "score_*.copies.pairs"), _NOTHING),
    **dict.fromkeys(("sample_generator.common.strip", "train_teacher.target", "train_tokenizer.evaluate*"), _NOTHING),
    **dict.fromkeys(("train_generator.dit.model.value_residual", "train_generator.dit.model.shared_adaln"), _NOTHING),
    **dict.fromkeys(("train_decoder.unets.*.calls", "train_decoder.unets.*.teacher*"), _NOTHING),
    **dict.fromkeys(("train_prior.diffusion.normalise", "sample_generator.common.captions*"), _NOTHING),
    **dict.fromkeys(("train_tokenizer.identity.trained", "train_tokenizer.pretrained.trained"), _NOTHING),
    **{f"train_tokenizer.{kind}.grid_images": _NOTHING for kind in ("identity", "pretrained")},
    **dict.fromkeys(("urls", "urls.*", "run.img2dataset"), f": take it out; {_IMG2DATASET}"),
    **dict.fromkeys(("*training.ema_profiles", "*training.ema_snapshots"), f": take it out; {_WIDTHS}"),
    **dict.fromkeys(("*.sigma_rel", "*.average_images"), f": take it out; {_WIDTHS}"),
    "*training.keep_every": ": it is now `save_every`",
    "*training.non_finite": ": take it out; such a step stops the training, which continues from its last checkpoint",
    "*.weaker_sigma_rel": ": take it out; name the folder of a weaker generator under `weaker`",
    "*.weaker_images": ": take it out; name the folder of a weaker generator under `weaker`",
    **dict.fromkeys(
        (f"embed_clip.imported.{key}" for key in ("layout", "metadata", "column")),
        ": take it out; embeddings are read in DALLE2-pytorch's layout, which embedding-dataset-reordering writes",
    ),
    "ingest.rules.wrong_extension": _NOTHING,
}


def require_new_names(params: Mapping[str, Any]) -> None:
    """Check that no key has a name of before, or is gone.

    Raises:
        DarkroomError: one sentence for each old name, with the new one or what to do.
    """
    leaves = list(_leaves(params))
    renamed = dict.fromkeys(name for key in leaves if (name := _old_name(key)) is not None)
    lines = [f"{PARAMS}: `{old}` is now `{RENAMED[old]}`: write it there." for old in renamed]
    gone = ((key, advice) for key in leaves for glob, advice in REMOVED.items() if fnmatchcase(key, glob))
    lines += [f"{PARAMS}: `{key}` was removed{advice}." for key, advice in gone]
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
