"""What a mutant changes, on a function that has one of each."""

import ast
from pathlib import Path

from mutation.operators import mutants

TEXT = '''
def f(x: int = 1, größe=-2):
    """Return 3."""
    if x < 4 and not größe:
        raise ValueError("5", f"{6}")
    x.add(7, True)
    return g(x, größe) if x else x + "8"
'''
CHANGES = {
    ("x < 4 and not größe", "x < 4 or not größe"),
    ("x < 4 and not größe", "not (x < 4 and (not größe))"),
    ("x < 4", "x <= 4"),
    ("4", "5"),
    ("not größe", "größe"),
    ('raise ValueError("5", f"{6}")', "pass"),
    ("x.add(7, True)", "pass"),
    ("x.add(7, True)", "x.add(True, 7)"),
    ("7", "8"),
    ("True", "False"),
    ('g(x, größe) if x else x + "8"', "x + '8' if x else g(x, größe)"),
    ("g(x, größe)", "g(größe, x)"),
}


def test_each_change_replaces_one_node_of_a_body(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(TEXT)
    found = mutants(tmp_path, tmp_path / "f.py")
    assert {tuple(each.change.split("  ->  ")) for each in found} == CHANGES and len(found) == len(CHANGES)
    for each in found:
        changed = each.apply(TEXT)
        assert ast.unparse(ast.parse(changed)) != ast.unparse(ast.parse(TEXT))
        assert (each.line == each.statement) and changed.count("\n") == TEXT.count("\n")
    assert len({each.order(0) for each in found}) == len(found)
