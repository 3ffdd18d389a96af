"""Finds the modules that a module loads, from the source: imports, also inside functions, and tables of kinds."""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from darkroom.artifacts.manifest import sha256_file
from darkroom.dag.fingerprint.trees import Definitions, definitions, digest
from darkroom.errors import DarkroomError

PACKAGE = "darkroom"
_WITHOUT_EFFECT = re.compile(r"^# No effect on any (output|weight): \S", re.MULTILINE)
_STRAY = re.compile(r"\..*|.*~|#.*#")  # temporary files of editors
_KINDS = "Kinds"
_LOADS = ("load", "has")  # the methods of a table whose first argument is a part
_MAY_USE = re.compile(r"\bKinds\(|\.(load|has)\(\"")
_BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")  # fields of statements that contain statements


@dataclass(frozen=True)
class Table:
    """One part of a table of kinds (`darkroom.kinds.Kinds`).

    name: the stage or the artifact that runs it; `build/code/NAME.json` holds its code.
    part: the name of the part.
    chosen_by: the key of params.yaml that chooses the kind.
    places: "MODULE:NAME" of each kind that has the part.
    """

    name: str
    part: str
    chosen_by: str
    places: dict[str, str]


class Source:
    """The source of a module, read and parsed once.

    Attributes:
        name: the dotted name of the module.
        path: the file of the module.
        effect: whether the module can change an output; a module that cannot is marked by a comment.
        tables: the tables of kinds in the module, by variable name, each by the names of its parts.
        uses: (table, part) of each call that loads a part of a kind.
    """

    def __init__(self, name: str, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        try:
            self._tree = ast.parse(text)
        except SyntaxError as error:
            raise DarkroomError(f"{path}, line {error.lineno}, is not valid Python: {error.msg}.") from error
        self.name, self.path = name, path
        self.effect = _WITHOUT_EFFECT.search(text) is None
        self._reads_docstrings = "__doc__" in text
        self.tables: dict[str, dict[str, Table]] = {}
        self.uses: set[tuple[str, str]] = set()
        calls = [node for node in ast.walk(self._tree) if isinstance(node, ast.Call)] if _MAY_USE.search(text) else []
        for call in calls:
            if _is_table(call.func):
                self._take(call)
            elif isinstance(call.func, ast.Attribute) and call.func.attr in _LOADS and call.args:
                table, part = call.func.value, call.args[0]
                if isinstance(table, ast.Name) and isinstance(part, ast.Constant):
                    self.uses.add((table.id, str(part.value)))

    def _take(self, call: ast.Call) -> None:
        """Read a table of kinds, and exclude the kinds from the hash of this module."""
        assigned = next((node for node in self._tree.body if getattr(node, "value", None) is call), None)
        if not isinstance(assigned, ast.Assign) or not isinstance(assigned.targets[0], ast.Name):
            raise DarkroomError(
                f"{self.path}, line {call.lineno}: a table of kinds is assigned to a name outside of classes and "
                "functions."
            )
        try:
            given = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
            chosen_by, package, kinds = given["chosen_by"], given["package"], given["kinds"]
            if any(isinstance(row, str) or len(row) != len(given["parts"]) for row in kinds.values()):
                raise ValueError
            tables: dict[str, Table] = {}
            for column, (part, name) in enumerate(given["parts"].items()):
                places = {kind: f"{package}.{row[column]}" for kind, row in kinds.items() if row[column] is not None}
                tables[part] = Table(name, part, chosen_by, places)
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise DarkroomError(
                f"{self.path}, line {call.lineno}: the arguments of a table of kinds are literals, each with its "
                "keyword, and each kind has as many places as there are parts, as in src/darkroom/models/kinds.py."
            ) from error
        self.tables[assigned.targets[0].id] = tables
        call.keywords = [keyword for keyword in call.keywords if keyword.arg != "kinds"]

    @cached_property
    def definitions(self) -> Definitions:
        """The hash of each definition."""
        return definitions(self._tree, self._reads_docstrings)

    @cached_property
    def imported(self) -> list[str]:
        """The dotted names in import statements: of modules, or of objects in modules."""
        found: list[str] = []
        for node in _statements(self._tree):
            if isinstance(node, ast.Import):
                found += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                found += [f"{self._from(node)}.{alias.name}" for alias in node.names]
        return [name for name in found if name.partition(".")[0] == PACKAGE]

    def _from(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = self.name.split(".") + [""] * (self.path.name == "__init__.py")
        return ".".join(filter(None, [*package[: -node.level], node.module]))


def _is_table(function: ast.expr) -> bool:
    """Return whether an expression is the name of the class of the tables of kinds."""
    return _KINDS in (getattr(function, "id", ""), getattr(function, "attr", ""))


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements in a node, at any depth, without those that only a type checker reads."""
    typing = isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
    for block in _BLOCKS[typing:]:
        for inner in getattr(node, block, ()):
            yield inner
            yield from _statements(inner)


@dataclass(frozen=True)
class Closure:
    """The import closure of some modules.

    modules: the loaded modules that can change an output, without those that only a kind loads.
    tables: (module, table) of each part of kinds that they load.
    """

    modules: frozenset[str]
    tables: tuple[tuple[str, Table], ...]


class Sources:
    """The modules of the package below a folder.

    Args:
        folder: the entry of Python's path: `src`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[str, Source | None] = {}
        self._beside: dict[Path, dict[str, Definitions]] = {}

    def source(self, module: str) -> Source | None:
        """Return the source of a module; None where there is no such module."""
        if module not in self._read:
            base = self._folder.joinpath(*module.split("."))
            paths = (base.with_name(f"{base.name}.py"), base / "__init__.py")
            path = next((path for path in paths if path.is_file()), None)
            self._read[module] = None if path is None else Source(module, path)
        return self._read[module]

    def closure(self, start: Iterable[str]) -> Closure:
        """Return the import closure of the modules of `start`, without modules that change no output and their imports.

        Raises:
            DarkroomError: one of `start` does not exist.
        """
        seen: dict[str, Source] = {}
        waiting = list(start)
        for module in waiting:
            if self.source(module) is None:
                raise DarkroomError(f"{self._folder} has no module {module}.")
        while waiting:
            source = self.source(waiting.pop())
            if source is None or source.name in seen or not source.effect:
                continue
            seen[source.name] = source
            for name in [source.name, *source.imported]:
                waiting += _prefixes(name)
        tables: list[tuple[str, Table]] = []
        for _, source in sorted(seen.items()):
            for use in sorted(source.uses):
                tables += [found for found in self._used(source, use) if found not in tables]
        return Closure(frozenset(seen), tuple(tables))

    def _used(self, source: Source, use: tuple[str, str]) -> Iterator[tuple[str, Table]]:
        """Yield the module of a table of kinds and the part that a call loads; nothing for a call of another object."""
        name, part = use
        modules = [dotted.rpartition(".")[0] for dotted in source.imported if dotted.rpartition(".")[2] == name]
        for module in modules or [source.name]:
            holder = self.source(module)
            if holder is not None and name in holder.tables:
                if part not in holder.tables[name]:
                    raise DarkroomError(f"{source.path}: {name} has no part `{part}`.")
                yield module, holder.tables[name][part]

    def hashes(self, modules: Iterable[str]) -> dict[str, Definitions]:
        """Return the hashes of the definitions of modules, and of the data files beside them."""
        found: dict[str, Definitions] = {}
        for module in sorted(modules):
            source = self.source(module)
            assert source is not None  # `closure` found it
            if source.definitions:
                found[module] = source.definitions
            found |= self._data(source.path.parent)
        return dict(sorted(found.items()))

    def _data(self, folder: Path) -> dict[str, Definitions]:
        """Return the hashes of the data files of a folder."""
        if folder not in self._beside:
            files = [path for path in folder.iterdir() if path.is_file() and not _STRAY.fullmatch(path.name)]
            self._beside[folder] = {
                path.relative_to(self._folder).as_posix(): {"": digest(sha256_file(path))}
                for path in files
                if path.suffix not in (".py", ".pyc")
            }
        return self._beside[folder]


def _prefixes(name: str) -> list[str]:
    """Return a dotted name and its packages, without the outermost package, which holds only a docstring."""
    words = name.split(".")
    return [".".join(words[:length]) for length in range(2, len(words) + 1)]
