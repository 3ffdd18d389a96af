"""Hashes of the definitions of a module, independent of comments, docstrings and layout.

`ast.dump` is not suitable: Python 3.12 and 3.13 have fields that 3.11 lacks, and split f-strings into other pieces.
"""

import ast
import hashlib
from collections.abc import Iterable

Definitions = dict[str, str]  # name of a function, `Class.method` or `Class`; "" for the statements outside

_DIGITS = 16  # hexadecimal digits of a hash: 64 bits
_UNREAD = ("type_comment", "type_ignores", "ctx")  # fields for type checkers, and one that follows from the context


def definitions(tree: ast.Module, keep_docstrings: bool = False) -> Definitions:
    """Return a hash of each definition of a module, and under "" of all other statements and the order of definitions.

    Two trees have equal hashes where they differ only in comments, layout, `pass`, docstrings and other constants that
    are statements. A module without statements has no entry.

    Args:
        tree: the syntax tree of the module.
        keep_docstrings: whether docstrings count, as in a module that reads `__doc__`.
    """
    writer = _Writer(keep_docstrings)
    writer.body(tree.body, "")
    return {name: digest("".join(words)) for name, words in sorted(writer.found.items())}


def digest(text: str) -> str:
    """Return the short hash of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


class _Writer:
    """Collects the canonical words of each definition in `found`."""

    def __init__(self, keep_docstrings: bool) -> None:
        self.found: dict[str, list[str]] = {}
        self._keep = keep_docstrings

    def body(self, statements: Iterable[ast.stmt], owner: str) -> None:
        """Write the statements of a module or a class; a class is split into its methods and the rest."""
        for statement in statements:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                words = self.found.setdefault(owner, [])
                words.append(f"{type(statement).__name__} {statement.name};")
                inside = f"{owner}.{statement.name}" if owner else statement.name
                words = self.found.setdefault(inside, [])
                if isinstance(statement, ast.ClassDef):
                    self._node(statement, words, without="body")
                    self.body(statement.body, inside)
                else:
                    self._node(statement, words)
            elif not self._is_idle(statement):
                self._value(statement, self.found.setdefault(owner, []))

    def _is_idle(self, value: object) -> bool:
        """Return whether a statement has no effect: a constant, such as a docstring or `...`, or `pass`."""
        bare = isinstance(value, ast.Expr) and isinstance(value.value, ast.Constant)
        return isinstance(value, ast.Pass) or (bare and not self._keep)

    def _value(self, value: object, words: list[str]) -> None:
        """Write a node, a list of nodes, or a value in a node."""
        if isinstance(value, ast.Constant):
            words.append(f"{type(value.value).__name__} {value.value!a};")  # `repr` follows a Python's Unicode tables
        elif isinstance(value, ast.JoinedStr):
            words.append("JoinedStr")
            self._value(_joined(value), words)
        elif isinstance(value, ast.AST):
            self._node(value, words)
        elif isinstance(value, list):
            words.append("[")
            for item in value:
                if not self._is_idle(item):
                    self._value(item, words)
            words.append("]")
        else:
            words.append(f"{value!a};")

    def _node(self, node: ast.AST, words: list[str], without: str = "") -> None:
        """Write the type of a node and its fields, without absent or empty ones."""
        words.append(f"{type(node).__name__}(")
        for name in node._fields:
            value = getattr(node, name, None)
            # Python 3.12 has an empty format where 3.11 has none.
            if (
                name in _UNREAD
                or name == without
                or value is None
                or value == []
                or (name == "format_spec" and not value.values)
            ):
                continue
            words.append(f"{name}=")
            self._value(value, words)
        words.append(")")


def _joined(node: ast.JoinedStr) -> list[ast.expr]:
    """Return the pieces of an f-string with adjacent texts joined: Python versions split them differently."""
    pieces: list[ast.expr] = []
    for piece in node.values:
        if isinstance(piece, ast.Constant) and pieces and isinstance(pieces[-1], ast.Constant):
            pieces[-1] = ast.Constant(f"{pieces[-1].value!s}{piece.value!s}")
        elif not (isinstance(piece, ast.Constant) and piece.value == ""):
            pieces.append(piece)
    return pieces
