"""Read a module: the statements that define each of its names, its imports, and its tables of kinds."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from darkroom.dag.fingerprint.trees import NAMED, Definition, dotted, imports, not_followed, of_type_checkers, read
from darkroom.errors import DarkroomError

_WITHOUT_EFFECT = re.compile(r"^# No effect on any (output|weight): \S", re.MULTILINE)
_KINDS = "Kinds"


@dataclass(frozen=True)
class Table:
    """One part of a table of kinds (`darkroom.kinds.Kinds`).

    name: the stage or the artifact that runs it; `build/code/NAME.json` holds its code.
    part: the name of the part.
    chosen_by: the key of params.yaml that chooses the kind; "": none, so that a stage depends on all kinds.
    places: "MODULE:NAME" of each kind that has the part.
    """

    name: str
    part: str
    chosen_by: str
    places: dict[str, str]


class Module:
    """The source of a module.

    Attributes:
        name: its dotted name.
        path: its file.
        effect: whether it can change an output; a module that cannot is marked by a comment.
        statements: those that bind each name that it defines; under "" those that bind none and run when it is loaded.
        made_inside: the names bound inside of the latter, as in `try` and `with`.
        decorators: (first name, attributes) of each decorator of a function or a class, by its name.
        imports: what each imported name means, as absolute dotted names.
        loads: the dotted names in its import statements: of modules, or of objects in modules.
        tables: the tables of kinds, by variable name, each by the names of its parts.

    Raises:
        DarkroomError: it is not valid Python, or its names cannot all be followed; names the line.
    """

    def __init__(self, name: str, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        try:
            tree = ast.parse(text)
        except SyntaxError as error:
            raise DarkroomError(f"{path}, line {error.lineno}, is not valid Python: {error.msg}.") from error
        self.name, self.path = name, path
        self.effect = _WITHOUT_EFFECT.search(text) is None
        self.statements: dict[str, list[ast.stmt]] = {}
        self.made_inside: set[str] = set()
        self.decorators: dict[str, set[tuple[str, str]]] = {}
        self.imports: dict[str, set[str]] = {}
        self.loads: set[str] = set()
        self.tables: dict[str, dict[str, Table]] = {}
        if _KINDS in text:
            self._take_tables(tree)
        for statement in _that_run(tree.body):
            self._sort(statement)

    def definitions(self, name: str) -> dict[str, Definition]:
        """Return the definitions in the statements that bind a name, for a class also each method; empty: none."""
        return read(name, self.statements.get(name, []), self.name, self.path)

    def _sort(self, statement: ast.stmt) -> None:
        """Sort a statement under the names that it binds."""
        if isinstance(statement, ast.Import | ast.ImportFrom):
            for name, meaning, loaded in imports(statement, self.name, self.path):
                self.imports.setdefault(name, set()).add(meaning)
                self.loads.add(loaded)
            return
        names = _made(statement)
        if "__getattr__" in names:
            raise not_followed(self.path, statement, "__getattr__")
        for name in names or [""]:
            self.statements.setdefault(name, []).append(statement)
        for each in getattr(statement, "decorator_list", []):
            first, _, attributes = dotted(each.func if isinstance(each, ast.Call) else each).partition(".")
            self.decorators.setdefault(names[0], set()).add((first, attributes))
        if not names:
            for inner in ast.walk(statement):
                if isinstance(inner, ast.Import | ast.ImportFrom):
                    self._sort(inner)
                elif isinstance(inner, NAMED):
                    self.made_inside.add(inner.name)
                elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                    self.made_inside.add(inner.id)

    def _take_tables(self, tree: ast.Module) -> None:
        """Read the tables of kinds, and remove the kinds that a parameter chooses from their statements."""
        names = {
            statement.value: statement.targets[0].id
            for statement in tree.body
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
        }
        for call in ast.walk(tree):
            if not isinstance(call, ast.Call) or dotted(call.func).rpartition(".")[2] != _KINDS:
                continue
            if call not in names:
                raise DarkroomError(
                    f"{self.path}, line {call.lineno}: a table of kinds must be assigned to a name outside of classes "
                    "and functions."
                )
            try:
                arguments = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
                self.tables[names[call]] = _parts(**arguments)
            except (ValueError, KeyError, AttributeError, TypeError) as error:
                raise DarkroomError(
                    f"{self.path}, line {call.lineno}: the arguments of a table of kinds must be literals with "
                    "keywords, and each kind must name its parts, as in src/darkroom/models/kinds.py."
                ) from error
            if arguments.get("chosen_by"):
                call.keywords = [keyword for keyword in call.keywords if keyword.arg != "kinds"]


def _parts(package: str, parts: dict[str, str], kinds: dict[str, Any], chosen_by: str = "") -> dict[str, Table]:
    """Return the parts of a table, whose rows are places by part."""
    if any(not row.keys() <= parts.keys() for row in kinds.values()):
        raise ValueError
    return {
        part: Table(
            name, part, chosen_by, {kind: f"{package}.{row[part]}" for kind, row in kinds.items() if part in row}
        )
        for part, name in parts.items()
    }


def _that_run(statements: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run, without those that only a type checker reads."""
    for statement in statements:
        if of_type_checkers(statement):
            yield from _that_run(statement.orelse)
        else:
            yield statement


def _made(statement: ast.stmt) -> list[str]:
    """Return the names that a definition or an assignment binds; none for other statements."""
    if isinstance(statement, NAMED):
        return [statement.name]
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign | ast.AugAssign):
        targets = [statement.target]
    else:
        return []
    names = [node for target in targets for node in ast.walk(target) if isinstance(node, ast.expr)]
    plain = (ast.Name, ast.Tuple, ast.List, ast.Starred)
    return [node.id for node in names if isinstance(node, ast.Name)] if all(isinstance(n, plain) for n in names) else []
