"""Which modules of the package a module loads, read from the source: also inside functions, and through tables."""

# No effect on any output: reads code, and runs none of it

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from darkroom.artifacts.hashing import sha256_file
from darkroom.dag.fingerprint.trees import Definitions, definitions, digest
from darkroom.errors import DarkroomError

PACKAGE = "darkroom"
_WITHOUT_EFFECT = re.compile(r"^# No effect on any (output|weight): \S", re.MULTILINE)
_STRAY = re.compile(r"\..*|.*~|#.*#")  # what editors leave
_KINDS = "Kinds"
_BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")  # fields of statements in which statements stand


@dataclass(frozen=True)
class Table:
    """A table of kinds, as `darkroom.kinds.Kinds` has it."""

    name: str
    chosen_by: str
    places: dict[str, str]


class Source:
    """A module's source, read and parsed once.

    Attributes:
        name: the module's dotted name.
        path: its file.
        effect: whether a line of it can change an output; a module that cannot says so itself, in a comment.
        tables: the tables of kinds in it.
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
        self.tables: list[Table] = []
        if f"{_KINDS}(" in text:
            calls = [node for node in ast.walk(self._tree) if isinstance(node, ast.Call) and _is_table(node.func)]
            for call in calls:
                self._take(call)

    def _take(self, call: ast.Call) -> None:
        """Read a table of kinds, and leave the kinds out of what is hashed of this module."""
        try:
            name, chosen_by, places = (ast.literal_eval(argument) for argument in call.args)
            self.tables.append(Table(name, chosen_by, {str(kind): str(place) for kind, place in places.items()}))
        except (ValueError, AttributeError) as error:
            raise DarkroomError(
                f"{self.path}, line {call.lineno}: a table of kinds is a name, a key of params.yaml and a dict, all "
                f'literals, as in `{_KINDS}("train_x", "train_x.kind", {{"y": "{PACKAGE}.models.y:Y"}})`.'
            ) from error
        if call not in [getattr(node, "value", None) for node in self._tree.body]:
            raise DarkroomError(
                f"{self.path}, line {call.lineno}: a table of kinds is assigned outside of classes and functions."
            )
        call.args[2:] = []

    @cached_property
    def definitions(self) -> Definitions:
        """The hash of each definition."""
        return definitions(self._tree, self._reads_docstrings)

    @cached_property
    def imported(self) -> list[str]:
        """Names that an import statement gives, dotted: of a module, or of something in one."""
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
    """Return whether a function is called by the name of the tables of kinds."""
    return _KINDS in (getattr(function, "id", ""), getattr(function, "attr", ""))


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements in one, at any depth, without those that only a type checker reads."""
    typing = isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
    for block in _BLOCKS[typing:]:
        for inner in getattr(node, block, ()):
            yield inner
            yield from _statements(inner)


@dataclass(frozen=True)
class Closure:
    """What some modules load, directly or not.

    modules: the loaded modules that can change an output.
    tables: (module, table) of each table of kinds in them. What a kind loads is not among `modules`.
    """

    modules: frozenset[str]
    tables: tuple[tuple[str, Table], ...]


class Sources:
    """The modules of the package below a folder.

    Args:
        folder: what lies on Python's path: `src`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[str, Source | None] = {}
        self._beside: dict[Path, dict[str, Definitions]] = {}

    def source(self, module: str) -> Source | None:
        """Return a module's source; None where there is no such module."""
        if module not in self._read:
            base = self._folder.joinpath(*module.split("."))
            paths = (base.with_name(f"{base.name}.py"), base / "__init__.py")
            path = next((path for path in paths if path.is_file()), None)
            self._read[module] = None if path is None else Source(module, path)
        return self._read[module]

    def closure(self, start: Iterable[str]) -> Closure:
        """Return what the modules of `start` load. A module without effect is left out, with all it alone loads.

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
        tables = tuple((name, table) for name, source in sorted(seen.items()) for table in source.tables)
        return Closure(frozenset(seen), tables)

    def hashes(self, modules: Iterable[str]) -> dict[str, Definitions]:
        """Return the hashes of the definitions of modules, and of the data files that lie beside them."""
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
    """Return a dotted name and the packages it lies in, without the outermost, which holds a docstring."""
    words = name.split(".")
    return [".".join(words[:length]) for length in range(2, len(words) + 1)]
