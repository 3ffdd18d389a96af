"""Read the content and the names of a definition, independent of comments, docstrings and layout.

`ast.dump` is not suitable: Python 3.12 and 3.13 have fields that 3.11 lacks, and split f-strings into other pieces.
"""

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeGuard

from darkroom.errors import DarkroomError

Definitions = dict[str, str]  # name of a function, `Class.method`, `Class` or binding; "" for the other statements

_DIGITS = 16  # hexadecimal digits of a hash: 64 bits
_UNREAD = ("type_comment", "type_ignores", "ctx")  # fields for type checkers, and one that follows from the context
_DOC = "__doc__"
_LOADS = ("load", "has")  # the methods of a table of kinds whose first argument is a part
_UNKNOWN = ("eval", "exec", "globals", "import_module", "__import__")  # the source does not name what they reach
_HOOKS = ("metaclass", "__init_subclass__", "__pydantic_init_subclass__")
NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_NAME = re.compile(r"[^\W\d][\w.]*")


@dataclass
class Definition:
    """A parsed definition.

    words: the canonical words of its syntax tree, without docstrings and other constants that are statements.
    names: the dotted names that it uses: `loss`, `flow.Flow`, `self.width`.
    imports: what `imports` yields for its own import statements.
    parts: (table, part, line) of each call that may load a part of a kind; the part is None unless it is a literal.
    """

    words: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    imports: set[tuple[str, str, str]] = field(default_factory=set)
    parts: set[tuple[str, str | None, int]] = field(default_factory=set)


def digest(text: str) -> str:
    """Return the short hash of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def read(name: str, statements: Iterable[ast.stmt], module: str, path: Path) -> dict[str, Definition]:
    """Return the definitions in the statements that bind one name of a module: `Class` and `Class.method` of a class.

    Two lists of statements have equal words where they differ only in comments, layout, `pass`, docstrings and other
    constants that are statements. The `name` is "" for statements that make none; `module` is the dotted name of the
    module, for relative imports.

    Raises:
        DarkroomError: a statement reaches code whose name is not in the source, or reads docstrings; names the line.
    """
    reader = _Reader(module, path)
    for statement in statements:
        reader.definition(statement, name)
    return reader.definitions


def dotted(node: ast.AST) -> str:
    """Return the dotted name of an expression; "" if it is not a name."""
    attributes = []
    while isinstance(node, ast.Attribute):
        attributes.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(attributes)]) if isinstance(node, ast.Name) else ""


def imports(node: ast.Import | ast.ImportFrom, module: str, path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield (name, what it means, what is loaded) of an import statement, as absolute dotted names.

    Raises:
        DarkroomError: it imports `*`.
    """
    for alias in node.names:
        if isinstance(node, ast.Import):
            bound = alias.asname or alias.name.partition(".")[0]
            yield bound, alias.name if alias.asname else bound, alias.name
        elif alias.name == "*":
            raise not_followed(path, node, "import *")
        else:
            package = module.split(".") + [""] * (path.name == "__init__.py")
            above = package[: -node.level] if node.level else []
            meaning = ".".join(filter(None, [*above, node.module, alias.name]))
            yield alias.asname or alias.name, meaning, meaning


def of_type_checkers(node: ast.AST) -> TypeGuard[ast.If]:
    """Return whether a statement is `if TYPE_CHECKING`, whose body never runs."""
    return isinstance(node, ast.If) and dotted(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def not_followed(path: Path, node: ast.AST, name: str) -> DarkroomError:
    """Return the error of code whose effect on other code is not in the source."""
    return DarkroomError(
        f"{path}, line {getattr(node, 'lineno', 0)}: `{name}` may reach code that the fingerprint of code does not "
        "find. Name the code that is used, or list it in a table of kinds (src/darkroom/kinds.py)."
    )


class _Reader:
    """Collect the content of `definitions`, by name."""

    def __init__(self, module: str, path: Path) -> None:
        self.definitions: dict[str, Definition] = {}
        self._module, self._path = module, path
        self._into = Definition()  # the one that is being read
        self._in_class = False  # whether annotations are evaluated at run time

    def definition(self, statement: ast.stmt, name: str) -> None:
        """Read a statement that belongs to a name; a class is split into its methods and its other statements."""
        self._into = self.definitions.setdefault(name, Definition())
        if not isinstance(statement, ast.ClassDef):
            self._value(statement)
            return
        inside = [inner for inner in statement.body if isinstance(inner, NAMED)]
        remainder = copy(statement)
        remainder.body = [inner for inner in statement.body if not isinstance(inner, NAMED)]
        self._value(remainder)
        self._into.words += [f"{type(inner).__name__} {inner.name};" for inner in inside]
        for inner in inside:
            self.definition(inner, f"{name}.{inner.name}")

    def _value(self, value: object) -> None:
        """Read a node, a list of nodes, or a value in a node."""
        into = self._into
        if isinstance(value, list):
            into.words.append("[")
            for item in value:
                self._value(item)
            into.words.append("]")
        elif not isinstance(value, ast.AST):
            into.words.append(f"{value!a};")
        elif isinstance(value, ast.Constant):
            if value.value == _DOC:
                raise not_followed(self._path, value, _DOC)
            into.words.append(f"{type(value.value).__name__} {value.value!a};")  # `repr` follows a Python's Unicode
        elif name := dotted(value):
            self._name(value, name)
        elif isinstance(value, ast.JoinedStr):
            into.words.append("JoinedStr")
            self._value(_joined(value))
        elif of_type_checkers(value):
            self._value(value.orelse)
        elif not isinstance(value, ast.Pass) and not _is_docstring(value):
            self._node(value)

    def _name(self, node: ast.AST, name: str) -> None:
        """Read a dotted name."""
        last = name.rpartition(".")[2]
        if name in _UNKNOWN or last in ("import_module", _DOC):
            raise not_followed(self._path, node, name)
        self._into.words.append(f"{name};")
        if not isinstance(getattr(node, "ctx", None), ast.Store) or last != name:  # `x = 1` uses no x, `x.y = 1` does
            self._into.names.add(name)

    def _node(self, node: ast.AST) -> None:
        """Read the type of a node and its fields, without absent or empty ones."""
        into, outer = self._into, self._in_class
        if isinstance(node, NAMED):
            self._in_class = isinstance(node, ast.ClassDef)
            hook = "metaclass" if "metaclass" in [each.arg for each in getattr(node, "keywords", [])] else node.name
            if hook in _HOOKS:
                raise not_followed(self._path, node, hook)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            into.imports |= set(imports(node, self._module, self._path))
        elif isinstance(node, ast.Global):
            into.names |= set(node.names)
        elif isinstance(node, ast.Attribute) and node.attr == _DOC:
            raise not_followed(self._path, node, _DOC)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LOADS:
            part = node.args[0] if node.args else None
            literal = str(part.value) if isinstance(part, ast.Constant) else None
            into.parts.add((dotted(node.func.value), literal, node.lineno))
        into.words.append(f"{type(node).__name__}(")
        for name in node._fields:
            value = getattr(node, name, None)
            # Python 3.12 has an empty format where 3.11 has none.
            if name in _UNREAD or value is None or value == [] or (name == "format_spec" and not value.values):
                continue
            into.words.append(f"{name}=")
            if name in ("annotation", "returns"):
                self._annotation(value)
            else:
                self._value(value)
        into.words.append(")")
        self._in_class = outer

    def _annotation(self, value: ast.AST) -> None:
        """Read an annotation. pydantic uses those of classes, also as texts; those of functions only count."""
        into = self._into
        if self._in_class:
            self._value(value)
            for node in ast.walk(value):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    into.names |= set(_NAME.findall(node.value))
        else:
            self._into = Definition(words=into.words)
            self._value(value)
            self._into = into


def _is_docstring(node: ast.AST) -> bool:
    """Return whether a statement is only a constant."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _joined(node: ast.JoinedStr) -> list[ast.expr]:
    """Return the pieces of an f-string with adjacent texts joined: Python versions split them differently."""
    pieces: list[ast.expr] = []
    for piece in node.values:
        if isinstance(piece, ast.Constant) and pieces and isinstance(pieces[-1], ast.Constant):
            pieces[-1] = ast.Constant(f"{pieces[-1].value!s}{piece.value!s}")
        elif not (isinstance(piece, ast.Constant) and piece.value == ""):
            pieces.append(piece)
    return pieces
