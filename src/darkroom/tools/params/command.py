"""What `darkroom params` prints."""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from darkroom.check.check import read_params, whole
from darkroom.dag.stages import TRAININGS
from darkroom.errors import DarkroomError
from darkroom.params.fits import new_name
from darkroom.params.section import PARAMS
from darkroom.params.stage import read_yaml
from darkroom.tools.editing import DEFAULT_VALUE, shown, value_of
from darkroom.tools.params.keys import ENTRY, REQUIRED, Key, keys
from darkroom.tools.preset import flag


def params(prefix: str | None, everything: bool) -> str:
    """Return the keys of params.yaml with value, default, allowed values and description.

    Args:
        prefix: a stage, a section or a key: that part alone; None: all.
        everything: also the keys that do not stand in params.yaml, at their defaults.

    Raises:
        DarkroomError: params.yaml is not valid, or there is no such key; names the nearest.
    """
    raw, values = read_yaml(PARAMS), read_params()
    found = [(name, key) for key in keys(whole()) for name in _names(key.name, raw)]
    known = [name for name, _ in found]
    if prefix is not None:
        found = [(name, key) for name, key in found if name == prefix or name.startswith(f"{prefix}.")]
    if not found:
        raise DarkroomError(f"{PARAMS} has no key `{prefix}`{_hint(str(prefix), known)}")
    leaves = [(name, key) for name, key in found if not key.is_section]
    standing = [(name, key) for name, key in leaves if value_of(raw, name) is not DEFAULT_VALUE]
    chosen = leaves if everything or not standing else standing
    lines = [line for name, key in chosen for line in _lines(name, key, raw, values)]
    if len(chosen) < len(leaves):
        lines += ["", f"{len(leaves) - len(chosen)} further keys have their defaults: `darkroom params … --all`."]
    if len(leaves) == 1 and prefix == leaves[0][0]:
        there = value_of(raw, prefix) is not DEFAULT_VALUE  # else Hydra adds it only with `++`
        lines += ["", f"As an experiment: dvc exp run {flag(prefix, value_of(values, prefix), there)}"]
    elif len(standing) < len(chosen):
        lines += ["", "- marks a key that does not stand in params.yaml: `dvc exp run -S '++KEY=VALUE'` adds it."]
    return "\n".join(lines)


def _hint(wanted: str, known: list[str]) -> str:
    """Return what a key that does not exist may stand for: its name of today, or the nearest keys."""
    if (new := new_name(wanted)) is not None:
        return f": it is now `{new}`."
    last = {name: name.rpartition(".")[2] for name in known}
    words = difflib.get_close_matches(wanted.rpartition(".")[2], sorted(set(last.values())), n=1, cutoff=0.75)
    # A typo in one part of a long key is nearest among the keys; in a word by itself, among the last parts.
    near = difflib.get_close_matches(wanted, known, n=3) or [name for name in known if last[name] in words]
    return f"; did you mean {' or '.join(f'`{each}`' for each in near[:3])}?" if near else "."


def _names(name: str, raw: Mapping[str, Any]) -> Iterator[str]:
    """Yield the key of the schema once for each entry of params.yaml that its `*` stands for."""
    before, star, after = name.partition(f".{ENTRY}.")
    if not star:
        yield name
        return
    entries = value_of(raw, before)
    for entry in entries if isinstance(entries, Mapping) else ():
        yield f"{before}.{entry}.{after}"


def _lines(name: str, key: Key, raw: Mapping[str, Any], values: Mapping[str, Any]) -> Iterator[str]:
    stands = value_of(raw, name) is not DEFAULT_VALUE
    stage, _, own = name.partition(".training.")
    shared = value_of(raw.get("training") or {}, own) if stage in TRAININGS and own else DEFAULT_VALUE
    if name.startswith("training."):
        value = value_of(raw, name)
        default = "default of each training" if value is DEFAULT_VALUE else f"default {_default(key)}"
    else:
        value = value_of(values, name)
        default = f"default {_default(key) if shared is DEFAULT_VALUE else f'{shown(shared)} (`training.{own}`)'}"
    text = shown(key.default if value is DEFAULT_VALUE else value)
    yield f"{' ' if stands else '-'} {name}: {text}"
    yield f"      {default}; {key.allowed}"
    yield f"      {key.description}"


def _default(key: Key) -> str:
    return "none" if key.default is REQUIRED else shown(key.default)
