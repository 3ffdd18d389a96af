"""What changes a hash of code, and what does not."""

import ast
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from darkroom.dag.fingerprint.following import WHOLE, Sources
from darkroom.dag.fingerprint.trees import read

CODE = '''
"""A module."""
from os import path

SIZE = 3  # pixels
place = path.join


class Net:
    """A network."""

    width: int = 8

    def forward(self, x):
        """Return it."""
        return x + 1

    @property
    def size(self):
        return self.width

    @size.setter
    def size(self, value):
        self.width = value


def loss(x, *, scale=1.0):
    def inner():
        """Nested."""
        return x

    return f"{inner()!r:>{scale}} and {{more}}" "text"
'''


def of(text: str) -> dict[str, str]:
    """Return the hashes of a module of the package with this text."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "darkroom" / "one.py"
        path.parent.mkdir()
        path.write_text(text, encoding="utf-8")
        sources = Sources(Path(folder))
        return sources.hashes(sources.closure([("darkroom.one", WHOLE)]).places).get("darkroom.one", {})


SAME = {
    "a comment": ("return x + 1", "return x + 1  # so"),
    "a docstring": ('"""Return it."""', '"""Return it, changed."""'),
    "no docstring": ('        """Return it."""\n', ""),
    "the docstring of the module": ('"""A module."""', '"""Another."""'),
    "the docstring of a class": ('    """A network."""\n', ""),
    "a description below a field": ("width: int = 8", 'width: int = 8\n    """Width, in pixels."""'),
    "a nested docstring": ('"""Nested."""', '"""Else."""'),
    "a bare constant": ("return x + 1", "...\n        return x + 1"),
    "pass": ("return x + 1", "pass\n        return x + 1"),
    "layout": ("return x + 1", "return (\n            x\n            + 1\n        )"),
    "blank lines": ("return x\n", "return x\n\n\n\n"),
    "quotes": ('"text"', "'text'"),
    "a joined text": ('" and {{more}}" "text"'.replace('" and', " and"), ' and {{more}}text"'),
    "parentheses": ("self.width = value", "(self.width) = (value)"),
    "the way a number is written": ("scale=1.0", "scale=1.00"),
}

OTHER = {
    "a body": ("return x + 1", "return x + 2", {"Net.forward"}),
    "a default": ("scale=1.0", "scale=1.5", {"loss"}),
    "a number's type": ("SIZE = 3", "SIZE = 3.0", {"SIZE"}),
    "a module's constant": ("SIZE = 3", "SIZE = 4", {"SIZE"}),
    "what an imported name means": ("from os import path", "from os import sep as path", {"place"}),
    "a field of a class": ("width: int = 8", "width: int = 9", {"Net"}),
    "an annotation": ("width: int = 8", "width: float = 8", {"Net"}),
    "one of two definitions of a name": ("self.width = value", "self.width = value + 1", {"Net.size"}),
    "a format": (":>{scale}", ":<{scale}", {"loss"}),
    "a conversion": ("!r", "!s", {"loss"}),
    "a text in a format": ("{{more}}", "{{less}}", {"loss"}),
    "a nested function": ("return x\n", "return -x\n", {"loss"}),
    "a name": ("def loss", "def lost", {"loss", "lost"}),
    "a base": ("class Net:", "class Net(dict):", {"Net"}),
    "a decorator": ("@property", "@staticmethod", {"Net.size"}),
    "a new function": ("def loss", "def more(): ...\n\n\ndef loss", {"more"}),
}


@pytest.mark.parametrize("story", SAME)
def test_what_no_program_reads_changes_nothing(story: str) -> None:
    old, new = SAME[story]
    assert CODE.count(old) >= 1
    assert of(CODE.replace(old, new)) == of(CODE)


@pytest.mark.parametrize("story", OTHER)
def test_what_a_program_reads_changes_the_definition_it_stands_in(story: str) -> None:
    old, new, named = OTHER[story]
    before, after = of(CODE), of(CODE.replace(old, new))
    assert {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} == named


def test_the_order_of_methods_counts() -> None:
    """pydantic runs validators in their order."""
    one, other = (of(f"class A:\n{body}") for body in (" def f(): 1\n def g(): 2", " def g(): 2\n def f(): 1"))
    assert one["A"] != other["A"] and one["A.f"] == other["A.f"]


def test_an_f_string_is_the_same_however_a_python_cuts_it() -> None:
    """3.12.1 has empty texts and empty formats where 3.11 and 3.13 have none, and may cut a text in two."""
    tree = ast.parse('x = f"{a}text"')
    (assigned,) = tree.body
    assert isinstance(assigned, ast.Assign) and isinstance(assigned.value, ast.JoinedStr)
    value, _ = pieces = assigned.value.values
    before = read("x", tree.body, "m", Path("m.py"))
    pieces[:] = [ast.Constant(""), value, ast.Constant("te"), ast.Constant("xt"), ast.Constant("")]
    assert isinstance(value, ast.FormattedValue)
    value.format_spec = ast.JoinedStr([])
    assert read("x", tree.body, "m", Path("m.py")) == before


def test_a_module_of_a_docstring_has_nothing() -> None:
    assert of('"""Only this."""\n# and this\n') == {}


TRICKY = r"""
import a.b as c
match = {**x, 1: {*y, 2}, "k": [*z]}
type_hint: "list[int] | None" = None
text = f"{a}{b!r:>{w}.{p}}{{c}}{d=}" f"{e:}" "z\N{SNOWMAN}\x00\ud800é", rb"\x00", u"k"
async def g(a, /, b: int = 1, *args, c=None, d, **kw) -> "x":
    async with p as q, r: yield [i async for i in j if i], (n := 3), lambda *a, k=1: a[1:2, ..., ::3]
    try: await q
    except* (A, B) as e: raise C from e
    finally: del a, b
    while True: continue
    else: many = 1_000 + 0x_ff + 1e3 + 2j + -0.0 + 1e400
    match a:
        case {"k": [1, *_], **rest} | None if rest: pass
@d(1)
class K(B, option=M): pass
"""
RECORDED = {
    "K": "f65eb8abe0582ad3",
    "g": "3b59043795951b47",
    "match": "1319d34a2727763b",
    "text": "350dc5daecc634ed",
    "type_hint": "eca29651f613f1f4",
}


def test_the_hash_is_the_same_on_every_python() -> None:
    """Recorded with 3.11; 3.12 and 3.13 have other trees and gave the same."""
    assert of(TRICKY) == RECORDED
