"""The descriptions of the keys of params.yaml: strings below the fields of the settings classes.

Read from the source when somebody wants them: a stage pays nothing for them, and a change of one makes nothing stale.
"""

# No effect on any output: reads descriptions from the source

import ast
import inspect
from functools import cache
from itertools import pairwise
from pathlib import Path

from pydantic import BaseModel


def description(model: type[BaseModel], field: str) -> str:
    """Return the description of a field of a settings class, "" where it has none.

    It is the string below the field in the class or in the nearest base that declares it, or what `Field` says.
    """
    for owner in model.__mro__:
        if text := _below_fields(Path(inspect.getfile(owner)), owner.__name__).get(field, ""):
            return text
        if owner is BaseModel:
            break
    return model.model_fields[field].description or ""


@cache
def _below_fields(file: Path, owner: str) -> dict[str, str]:
    """Return for each field of a class in a file the string below it, on one line."""
    classes = [node for node in _tree(file).body if isinstance(node, ast.ClassDef) and node.name == owner]
    body = [statement for node in classes for statement in node.body]
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))
