"""Follow names through the source, from some definitions to all that they reach, and hash these.

A definition is a function, a whole class, or a binding of a module. It reaches what it names, what its own import
statements load, and the loading of its module: the statements that bind no name, and the loading of its imports.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from darkroom.artifacts.manifest import sha256_file
from darkroom.dag.fingerprint.modules import Module, Table
from darkroom.dag.fingerprint.trees import Definition, Definitions, digest
from darkroom.errors import DarkroomError

PACKAGE = "darkroom"
LOADED, WHOLE = "", "*"  # in place of a definition: loading a module, or all of its definitions
_STRAY = re.compile(r"\..*|.*~|#.*#")  # temporary files of editors

Place = tuple[str, str]  # a module and a definition in it
_Meaning = tuple[str, Place | None]  # the full name of something, and its place where it is of the package


@dataclass
class _Node:
    """A definition, and what it reaches directly.

    hashes: of its words and of the meanings of the names in them; a class also has one per method.
    reached: the definitions that it reaches.
    tables: the module and the part of each table of kinds that it loads, where a parameter chooses the kind.
    """

    hashes: Definitions = field(default_factory=dict)
    reached: set[Place] = field(default_factory=set)
    tables: list[tuple[str, Table]] = field(default_factory=list)


@dataclass(frozen=True)
class Closure:
    """The definitions that some definitions reach.

    places: the definitions that can change an output, without those that only a kind reaches.
    tables: the module and the part of each table of kinds that they load.
    cut: the modules marked as without effect that would reach more.
    """

    places: frozenset[Place]
    tables: tuple[tuple[str, Table], ...]
    cut: frozenset[str]


class Sources:
    """The modules of the package below a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._modules: dict[str, Module | None] = {}
        self._nodes: dict[Place, _Node] = {}
        self._beside: dict[Path, dict[str, Definitions]] = {}

    def module(self, name: str) -> Module | None:
        """Return the module of a dotted name, or None."""
        if name not in self._modules:
            base = self._folder.joinpath(*name.split("."))
            paths = (base.with_name(f"{base.name}.py"), base / "__init__.py")
            path = next((path for path in paths if path.is_file()), None)
            self._modules[name] = None if path is None else Module(name, path)
        return self._modules[name]

    def closure(self, roots: Iterable[Place]) -> Closure:
        """Return what the definitions of `roots` reach.

        Raises:
            DarkroomError: one of `roots` does not exist, or what it reaches cannot be followed.
        """
        waiting, reached, cut, loads = list[Place](), set[Place](), set[str](), set[str]()
        for module, name in roots:
            source, places = self.module(module), [(module, name)]
            if source is not None and name not in (LOADED, WHOLE):  # it may be imported there
                places = [place for _, place in self._in_module(source, name, "") if place is not None]
            if source is None or not places:
                raise DarkroomError(f"{self._folder} has no module {module}{f' with {name}' if source else ''}.")
            waiting += places
        while waiting:
            place = waiting.pop()
            source = self._modules[place[0]]
            if place in reached or source is None:
                continue
            if source.effect:
                reached.add(place)
                waiting += self._node(place).reached
                continue
            loads |= source.loads
            if place[1] != LOADED or any(each.words for each in source.definitions(LOADED).values()):
                cut.add(source.name)
        # What modules without effect load may change other modules when it is loaded: `torch.Tensor.square = …`.
        waiting, visited = list(self._loaded(loads)), set(reached)
        while waiting:
            if (place := waiting.pop()) not in visited and (source := self._modules[place[0]]) is not None:
                visited.add(place)
                waiting += self._loaded(source.loads)
                reached |= {place} if source.effect and self._node(place).hashes else set()
        tables: list[tuple[str, Table]] = []
        for place in sorted(reached):
            tables += [table for table in self._nodes[place].tables if table not in tables]
        return Closure(frozenset(reached), tuple(tables), frozenset(cut))

    def hashes(self, places: Iterable[Place]) -> dict[str, Definitions]:
        """Return the hashes of definitions by module, and of the data files next to these modules."""
        hashes: dict[str, Definitions] = {}
        for module, name in sorted(places):
            if own := self._node((module, name)).hashes:
                hashes.setdefault(module, {}).update(own)
        folders = {source.path.parent for module in hashes if (source := self._modules[module]) is not None}
        for folder in folders:
            hashes |= self._data(folder)
        return {module: dict(sorted(names.items())) for module, names in sorted(hashes.items())}

    def _node(self, place: Place) -> _Node:
        if place not in self._nodes:
            source = self.module(place[0])
            assert source is not None  # `_means` and `closure` checked it
            self._nodes[place] = self._read(source, place[1])
        return self._nodes[place]

    def _read(self, source: Module, name: str) -> _Node:
        """Read a definition of a module."""
        node = _Node()
        if name == LOADED:
            node.reached |= set(self._loaded([source.name, *source.loads]))
            for each, decorators in source.decorators.items():  # one of the package may store what it decorates
                if any(place for used in decorators for _, place in self._in_module(source, *used)):
                    node.reached.add((source.name, each))
        elif name == WHOLE:
            node.reached |= {(source.name, each) for each in (LOADED, *source.statements)}
        else:
            node.reached.add((source.name, LOADED))
        for inside, definition in source.definitions(name).items():
            meanings = {used: list(self._meanings(source, definition, used)) for used in definition.names}
            names = sorted(f"{used}={text};" for used, targets in meanings.items() for text, _ in targets)
            if definition.words:
                node.hashes[inside] = digest("".join(definition.words + names))
            node.reached |= {place for targets in meanings.values() for _, place in targets if place is not None}
            node.reached |= set(self._loaded(loaded for _, _, loaded in definition.imports))
            for holder, table in self._tables(source, definition):
                if table.chosen_by:
                    node.tables.append((holder, table))
                    continue
                for kind in table.places.values():
                    node.reached |= {place for _, place in self._means(kind.replace(":", "."), "") if place}
        return node

    def _loaded(self, names: Iterable[str]) -> Iterator[Place]:
        """Yield the loading of the modules, and of their packages, in dotted names of modules or of objects in them."""
        for name in names:
            words = name.split(".")
            for length in range(1, len(words) + 1 if words[0] == PACKAGE else 1):
                if self.module(module := ".".join(words[:length])) is not None:
                    yield module, LOADED

    def _meanings(self, source: Module, definition: Definition, used: str) -> Iterator[_Meaning]:
        """Yield the possible meanings of a dotted name in a definition.

        None for names of Python and for most variables in functions; a variable with the name of something in the
        module, or of an import in the same definition, counts as that.
        """
        first, _, attributes = used.partition(".")
        for name, meaning, _ in definition.imports:
            if name == first:
                yield from self._means(meaning, attributes)
        yield from self._in_module(source, first, attributes)

    def _in_module(self, source: Module, first: str, attributes: str) -> Iterator[_Meaning]:
        """Yield the meanings of the dotted name FIRST.ATTRIBUTES in a module."""
        full_name = f"{source.name}.{first}"
        if first in source.statements or first in source.made_inside:
            yield full_name, (source.name, first if first in source.statements else LOADED)
        if source.effect:
            for meaning in source.imports.get(first, ()):
                if meaning != full_name:  # and not a package that imports its own module
                    yield from self._means(meaning, attributes)

    def _means(self, name: str, attributes: str) -> Iterator[_Meaning]:
        """Yield the meanings of the absolute dotted name NAME.ATTRIBUTES."""
        module, *words = (f"{name}.{attributes}" if attributes else name).split(".")
        if module != PACKAGE:
            yield ".".join([module, *words]), None
            return
        for index, word in enumerate(words):
            source = self.module(module)
            targets = [] if source is None else list(self._in_module(source, word, ".".join(words[index + 1 :])))
            if targets or self.module(f"{module}.{word}") is None:
                yield from targets or [(module, (module, WHOLE))]
                return
            module = f"{module}.{word}"
        yield module, (module, WHOLE)

    def _tables(self, source: Module, definition: Definition) -> Iterator[tuple[str, Table]]:
        """Yield the module of a table of kinds and the part, of each call in a definition that loads one.

        Raises:
            DarkroomError: the table has no such part, or its name is not a literal.
        """
        for used, part, line in sorted(definition.parts, key=str):
            for _, place in self._meanings(source, definition, used):
                holder = None if place is None else self.module(place[0])
                if place is None or holder is None or place[1] not in holder.tables:
                    continue
                table = holder.tables[place[1]]
                if part not in table:
                    problem = "a part that is not a literal" if part is None else f"no part `{part}`"
                    raise DarkroomError(f"{source.path}, line {line}: {place[1]} has {problem}.")
                yield place[0], table[part]

    def _data(self, folder: Path) -> dict[str, Definitions]:
        """Return the hashes of the data files of a folder."""
        if folder not in self._beside:
            files = [path for path in folder.iterdir() if path.is_file() and not _STRAY.fullmatch(path.name)]
            self._beside[folder] = {
                path.relative_to(self._folder).as_posix(): {"": digest(sha256_file(path))}
                for path in files
                if path.suffix not in (".py", ".pyc", ".typed")
            }
        return self._beside[folder]
