"""How long a stage's libraries take to load: each module's own seconds, added up over those that the stage imports."""

import builtins
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.machinery import ExtensionFileLoader, SourceFileLoader
from types import ModuleType
from typing import Any

_LOADERS: tuple[Any, ...] = (SourceFileLoader, ExtensionFileLoader)


class Loading:
    """Which modules were imported inside `recorded`, what each of them imports, and the seconds of work it took."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}  # without what a module imports
        self._imports: defaultdict[str, set[str]] = defaultdict(set)
        self._inner: list[tuple[str, float]] = []  # the modules that are being loaded, and the seconds of those inside

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record what is imported inside the block."""
        loads, load = [loader.exec_module for loader in _LOADERS], builtins.__import__
        for loader, run in zip(_LOADERS, loads, strict=True):
            loader.exec_module = self._timed(run)
        builtins.__import__ = self._noted(load)
        try:
            yield
        finally:
            builtins.__import__ = load
            for loader, run in zip(_LOADERS, loads, strict=True):
                loader.exec_module = run

    def _timed(self, run: Any) -> Any:
        def timed(loader: Any, module: ModuleType) -> None:
            if self._inner:
                self._imports[self._inner[-1][0]].add(module.__name__)
            began = time.process_time()
            self._inner.append((module.__name__, 0.0))
            try:
                run(loader, module)
            finally:
                taken = time.process_time() - began
                self._seconds[module.__name__] = taken - self._inner.pop()[1]
                if self._inner:
                    name, inside = self._inner[-1]
                    self._inner[-1] = name, inside + taken

        return timed

    def _noted(self, load: Any) -> Any:
        """Return an import that also notes modules which another has loaded before."""

        def noted(name: str, *rest: Any, **named: Any) -> Any:
            found = load(name, *rest, **named)
            if self._inner:
                wanted = named.get("fromlist", rest[2] if len(rest) > 2 else None) or ()
                values = [vars(found).get(each) for each in wanted]
                self._imports[self._inner[-1][0]] |= {found.__name__ if wanted else name, *map(_origin, values)}
            return found

        return noted

    def seconds(self, roots: Iterable[str]) -> float:
        """Return the seconds that some modules take with all that they import, in a process that has loaded nothing."""
        return sum(self._seconds.get(name, 0.0) for name in self.closure(roots))

    def closure(self, roots: Iterable[str]) -> set[str]:
        """Return some modules and all that they import, the packages around them included."""
        found: set[str] = set()
        todo = list(roots)
        while todo:
            name = todo.pop()
            if name in found or name not in sys.modules:
                continue
            found.add(name)
            todo += [name.rpartition(".")[0], *self._imports[name]]
        return found


def _origin(value: Any) -> str:
    """Return the module that a value comes from, or is."""
    origin = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "")
    return origin if isinstance(origin, str) else ""
