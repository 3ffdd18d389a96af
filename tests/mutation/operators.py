"""What a mutant changes: one node of the syntax tree, its text replaced in place."""

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import accumulate
from pathlib import Path

FLIPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.Gt: ast.GtE,
    ast.Eq: ast.NotEq,
    ast.Is: ast.IsNot,
    ast.In: ast.NotIn,
    ast.Add: ast.Sub,
    ast.Mult: ast.Div,
    ast.And: ast.Or,
}
FLIPS |= {new: old for old, new in FLIPS.items()}
CRASH = {ast.JoinedStr, ast.List, ast.ListComp, ast.Tuple}  # where they are subtracted


@dataclass(frozen=True)
class Mutant:
    """A change of one line of the tree.

    Args:
        path: of the file, from the root of the tree.
        line: of the node.
        statement: first line of its statement.
        change: old text and new text, each on one line.
        place: text of the line, with the number of equal changes before this one.
        span: where the old text begins and ends.
        new: the new text.
    """

    path: str
    line: int
    statement: int
    change: str
    place: str
    span: tuple[int, int]
    new: str

    def order(self, seed: int) -> str:
        """Return where the draw puts it. Other changes of the tree do not move it."""
        return sha256(f"{seed} {self.path} {self.place} {self.change}".encode()).hexdigest()

    def apply(self, text: str) -> str:
        """Return the text of the file with the change."""
        return f"{text[: self.span[0]]}{self.new}{text[self.span[1] :]}"


def mutants(root: Path, path: Path) -> list[Mutant]:
    """Return every change of the bodies of a file's functions."""
    text = path.read_text()
    lines = text.splitlines(keepends=True)
    starts = [0, *accumulate(map(len, lines))]

    def offset(line: int, column: int) -> int:
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())  # columns count bytes of UTF-8

    name, found, times = path.relative_to(root).as_posix(), [], Counter[str]()
    for statement, node, new in _changes(ast.parse(text)):
        if lines[statement - 1].lstrip().startswith("elif"):
            continue  # before which no probe can stand
        span = offset(node.lineno, node.col_offset), offset(node.end_lineno or 0, node.end_col_offset or 0)
        change = f"{' '.join(text[slice(*span)].split())}  ->  {new}"
        place = f"{lines[node.lineno - 1].strip()} {change}"
        found.append(Mutant(name, node.lineno, statement, change, f"{place} {times[place]}", span, new))
        times[place] += 1
    return found


def _changes(tree: ast.Module) -> Iterator[tuple[int, ast.expr | ast.stmt, str]]:
    """Yield the first line of a statement, a node in it, and the new text of the node."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for statement in function.body:
                yield from _of_statement(statement)


def _of_statement(statement: ast.stmt) -> Iterator[tuple[int, ast.expr | ast.stmt, str]]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return  # its functions are found by themselves
    if _may_go(statement):
        yield statement.lineno, statement, "pass"
    if isinstance(statement, ast.Raise):
        return  # nor what a message says
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.stmt):
            yield from _of_statement(child)
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            for each in child.body:
                yield from _of_statement(each)
        elif not (isinstance(statement, ast.AnnAssign) and child is statement.annotation):
            yield from ((statement.lineno, node, new) for node, new in _of_expression(child))
    if isinstance(statement, ast.If | ast.While):
        yield statement.lineno, statement.test, f"not ({ast.unparse(statement.test)})"


def _may_go(statement: ast.stmt) -> bool:
    """Return whether the code still runs without a statement: a call, a refusal, or a change of what exists."""
    if isinstance(statement, ast.Assign):
        return isinstance(statement.targets[0], ast.Attribute | ast.Subscript)
    return isinstance(statement, ast.AugAssign | ast.Raise) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    )


def _of_expression(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """Yield changes of an expression and what it is made of, but for f-strings, which are messages and names."""
    if isinstance(node, ast.JoinedStr):
        return
    if isinstance(node, ast.expr):
        yield from ((node, ast.unparse(new)) for new in _replaced(node))
    for child in ast.iter_child_nodes(node):
        yield from _of_expression(child)


def _crashes(*operands: ast.expr) -> bool:
    """Return whether one cannot be subtracted, so that any test that runs the line would see it."""
    return any(type(each) in CRASH or isinstance(getattr(each, "value", None), str) for each in operands)


def _replaced(node: ast.expr) -> Iterator[ast.expr]:
    """Yield what one expression may become."""
    match node:
        case ast.Compare(left, [op], others) if type(op) in FLIPS:
            yield ast.Compare(left, [FLIPS[type(op)]()], others)  # type: ignore[list-item]
        case ast.BinOp(left, op, right) if type(op) in FLIPS and not _crashes(left, right):
            yield ast.BinOp(left, FLIPS[type(op)](), right)  # type: ignore[arg-type]
        case ast.BoolOp(op, values):
            yield ast.BoolOp(FLIPS[type(op)](), values)  # type: ignore[arg-type]
        case ast.UnaryOp(ast.USub() | ast.Not(), operand):
            yield operand
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value)):
            yield ast.Constant(value + 1)
        case ast.IfExp(test, body, orelse):
            yield ast.IfExp(test, orelse, body)
        case ast.Call(ast.Name("max" | "min" | "isinstance" | "getattr" | "hasattr" | "setattr" | "map" | "filter")):
            return  # the order of their arguments does not count, or another one crashes
        case ast.Call(function, [first, second, *rest], keywords) if not isinstance(first, ast.Starred):
            yield ast.Call(function, [second, first, *rest], keywords)
