"""Tables of kinds: a readable dict literal names what parameters can choose, and only the chosen one is loaded."""

# No effect on any output: loads what a table names; the table itself and what it names are part of the fingerprint

import importlib
from collections.abc import Mapping
from typing import Any


class Kinds(dict[str, str]):
    """Where each kind lies: kind to "MODULE:NAME".

    The fingerprint of code (`darkroom.dag.fingerprint`) reads such tables from the source, so all arguments are
    literals. It puts the code of the chosen kind into `build/code/NAME.json`: an edit of another kind makes nothing
    stale.

    Args:
        name: what the kinds are of: the stage, or the artifact that they open.
        chosen_by: the key of params.yaml that chooses, which dvc.yaml lists under `params` of the stage `code`.
        places: the table.
    """

    def __init__(self, name: str, chosen_by: str, places: Mapping[str, str]) -> None:
        super().__init__(places)
        self.name, self.chosen_by = name, chosen_by

    def load(self, kind: str) -> Any:
        """Import and return what stands for a kind."""
        module, _, name = self[kind].partition(":")
        return getattr(importlib.import_module(module), name)
