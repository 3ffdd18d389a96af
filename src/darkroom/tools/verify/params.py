"""The keys of params.yaml that `darkroom data` reads, and folders that belong to no part."""

import difflib
from collections.abc import Collection, Sequence
from pathlib import Path

from darkroom.data.embeddings import EMBEDDING_PARTS
from darkroom.data.latents import LATENT_PARTS
from darkroom.data.layout import SHARDS
from darkroom.errors import DarkroomError
from darkroom.params.ingest import Ingest
from darkroom.params.parts import Parts
from darkroom.params.section import PARAMS, Section, validate
from darkroom.params.stage import lookup, read_yaml

_FOLDERS = (SHARDS, LATENT_PARTS, EMBEDDING_PARTS)


class Params(Section):
    """The parts, in the order in which every stage reads them, and the section `ingest`."""

    parts: Parts
    ingest: Ingest


def read_params() -> Params:
    """Return the keys of params.yaml in the working folder.

    Raises:
        DarkroomError: missing or not valid; the message names file and key.
    """
    values = read_yaml(PARAMS)
    return validate(Params, {name: lookup(values, name) for name in Params.model_fields})


def require_known(names: Sequence[str], parts: Sequence[str]) -> list[str]:
    """Return the parts that were requested, in the order of `parts`; all where none was named.

    Raises:
        DarkroomError: params.yaml has no such part; the message suggests the nearest name.
    """
    for name in names:
        if name not in parts:
            near = difflib.get_close_matches(name, parts, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"it has {', '.join(parts)}."
            raise DarkroomError(f"{PARAMS} has no part `{name}`; {hint}")
    return [part for part in parts if not names or part in names]


def left_over(parts: Collection[str]) -> list[str]:
    """Return the folders of parts that were removed from params.yaml."""
    folders: list[Path] = [folder for root in _FOLDERS for folder in sorted(root.glob("[!.]*/")) if folder.is_dir()]
    return [str(folder) for folder in folders if folder.name not in parts]
