"""Checks that sections of params.yaml fit each other: helpers of each package's `fits`, and old names of keys."""

import json
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
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


# The most specific old name counts for a key: what lies below a section is renamed with it, and `*` is kept.
RENAMED = {
    "*training.keep_every": "*training.save_every",
    "run.at_risk": "run.max_lost_seconds",
    "ingest.max_quarantined": "catalog.max_quarantined",
    "score_dit": "score_generator",
    "sample_dit": "sample_generator.common",
    "sample_dit.guidance": "sample_generator.dit.guidance",
    "sample_dit.solver": "sample_generator.dit.solver",
    "sample_dit.steps": "sample_generator.dit.steps",
    "sample_generator.dit.weaker": "sample_generator.dit.guide",
    "train_decoder.common": "train_decoder.training",
    "train_decoder.unets.*.trained": "train_decoder.unets.*.frozen",
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
    "train_tokenizer.*.adversarial.rate": "train_tokenizer.*.adversarial.lr_scale",
    "train_tokenizer.common": "train_tokenizer.training",
    **{f"train_tokenizer.{key}.trained": f"train_tokenizer.{key}.frozen" for key in ("dvae", "kl", "vqgan", "vq_ar")},
}
_INVERT = ", and invert its value"  # of `frozen`, which was `trained`

# Removed keys without a new name, as globs, and what to do instead.
_NOTHING = " and is no longer read: delete it"
_IMG2DATASET = "start img2dataset yourself, and read what it writes with the source webdataset "
_IMG2DATASET += "(docs/how-to/choose-data.md)"
_WIDTHS = ": delete it; set `ema_decay` before the training, or keep weights on the way with `save_every`"
REMOVED = {
    **dict.fromkeys(("*training.min_improvement", "*training.decay_images", "*training.groups"), _NOTHING),
    **dict.fromkeys(("*.diffusion.direction_weight", "score_*.copies.pairs"), _NOTHING),
    **dict.fromkeys(("sample_generator.common.strip", "train_teacher.target", "train_tokenizer.evaluate*"), _NOTHING),
    **dict.fromkeys(("train_generator.dit.model.value_residual", "train_generator.dit.model.shared_adaln"), _NOTHING),
    **dict.fromkeys(("train_decoder.unets.*.calls", "train_decoder.unets.*.teacher*"), _NOTHING),
    **dict.fromkeys(("train_prior.diffusion.normalise", "sample_generator.common.captions*"), _NOTHING),
    **dict.fromkeys(("train_tokenizer.identity.trained", "train_tokenizer.pretrained.trained"), _NOTHING),
    **{f"train_tokenizer.{kind}.grid_images": _NOTHING for kind in ("identity", "pretrained")},
    **dict.fromkeys(("urls", "urls.*", "run.img2dataset"), f": delete it; {_IMG2DATASET}"),
    **dict.fromkeys(("*training.ema_profiles", "*training.ema_snapshots", "*.sigma_rel", "*.average_images"), _WIDTHS),
    "*training.non_finite": ": delete it; such a step stops the training, which continues from its last checkpoint",
    "*.weaker_*": ": delete it; name the folder of a weaker generator under `guide`",
    **dict.fromkeys(
        (f"embed_clip.imported.{key}" for key in ("layout", "metadata", "column")),
        ": delete it; embeddings are read in DALLE2-pytorch's layout, which embedding-dataset-reordering writes",
    ),
    "ingest.rules.wrong_extension": _NOTHING,
}


def require_new_names(params: Mapping[str, Any]) -> None:
    """Check that no key has an old name or was removed.

    Raises:
        DarkroomError: one sentence for each old name, with the new one or what to do.
    """
    leaves = list(_leaves(params))
    names = dict(filter(None, map(_renamed, leaves))).items()
    lines = [f"{PARAMS}: `{old}` is now `{new}`: rename it{_INVERT * new.endswith('.frozen')}." for old, new in names]
    removed = ((key, advice) for key in leaves for glob, advice in REMOVED.items() if fnmatchcase(key, glob))
    lines += [f"{PARAMS}: `{key}` was removed{advice}." for key, advice in removed]
    if lines:
        raise DarkroomError("\n".join(lines))


def new_name(key: str) -> str | None:
    """Return the current name of a renamed key; None: it was not renamed."""
    return key.replace(*names, 1) if (names := _renamed(key)) else None


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _renamed(key: str) -> tuple[str, str] | None:
    """Return the longest old name that a key is, or lies below, and its new name."""
    names = [
        (match[1], new.replace("*", "".join(match.groups()[1:])))
        for old, new in RENAMED.items()
        if "*" in old or key.startswith(old)
        if (match := re.match(rf"({re.escape(old)})(?:\.|$)".replace(r"\*", "(.*)"), key))
    ]
    return max(names, key=lambda pair: len(pair[0]), default=None)
