"""The seconds of modules, by a clock that stands still but for what the modules do."""

import sys
from types import SimpleNamespace

import pytest

from darkroom.tools.plan import loading

FILES = {
    "heavy": "import clock; clock.now += 8; VALUE = 1",
    "room/__init__": "import clock; clock.now += 1",
    "room/light": "import clock; clock.now += 2; from heavy import VALUE",
    "room/lazy": "import clock; clock.now += 4\ndef run():\n    import heavy",
    "room/late": "import clock; from room import light; clock.now += 0.5",
}


@pytest.fixture
def modules(tmp_path, monkeypatch):
    clock = SimpleNamespace(now=0.0, __name__="clock")
    monkeypatch.setitem(sys.modules, "clock", clock)
    monkeypatch.setattr(loading, "time", SimpleNamespace(process_time=lambda: clock.now))
    for name, text in FILES.items():
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("heavy", "room", "room.light", "room.lazy", "room.late"):
        sys.modules.pop(name, None)


def test_a_module_takes_what_it_imports_whoever_loaded_it_first(modules):
    before = __builtins__["__import__"]
    found = loading.Loading()
    with found.recorded():
        import room.lazy
        import room.light
    with found.recorded():
        import room.late  # noqa: F401
    assert __builtins__["__import__"] is before
    assert found.seconds(["room.light"]) == 1 + 2 + 8
    assert found.seconds(["room.lazy"]) == 1 + 4  # what a function imports is its own affair
    assert found.seconds(["room.late"]) == 1 + 2 + 8 + 0.5  # all of which others had loaded
    assert found.seconds(["room.lazy", "heavy"]) == 1 + 4 + 8
    assert found.seconds(["nothing"]) == 0
