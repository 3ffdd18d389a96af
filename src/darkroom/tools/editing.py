"""Edit params.yaml line by line: change values, and preserve comments, order and style.

The style is that of DVC: one key per line, one list item per line, null as an empty value.
"""

import json
import re
from collections.abc import Mapping
from copy import deepcopy
from io import StringIO
from typing import Any

from ruamel.yaml import YAML

from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.stage import DVC, put, read_yaml, stage_entry
from darkroom.params.yaml_text import parse_yaml

DEFAULT_VALUE = object()  # of a key that is not in params.yaml
_COLUMN = 26  # where comments in params.yaml begin
_KEY = re.compile(r"( *)([\w.-]+|\"[^\"]*\"|'[^']*'):(?= |$)")
_VALUE = r"(?: +(?:\"(?:\\.|[^\"])*\"|'(?:''|[^'])*'|[^\s#]\S*))*"
_TEMPLATE = re.compile(r"\$\{[^}]*\}")

Path = tuple[str, ...]


def value_of(values: Any, key: str) -> Any:
    """Return the value of a dotted key in nested mappings, or DEFAULT_VALUE if it is missing."""
    for part in key.split("."):
        if not isinstance(values, Mapping) or part not in values:
            return DEFAULT_VALUE
        values = values[part]
    return values


def shown(value: Any) -> str:
    """Return a value as one line of YAML."""
    if value is DEFAULT_VALUE:
        return "(default)"
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False, default=str)


def laid_over(text: str, new: Mapping[str, Any]) -> str:
    """Return the text of params.yaml with new values for some dotted keys; DEFAULT_VALUE removes a key.

    A new key is added at the top of its section.

    Raises:
        DarkroomError: the style of the file is not supported, so a value cannot be set.
    """
    file = _File(text)
    for key, value in new.items():
        path = tuple(key.split("."))
        if value is DEFAULT_VALUE:
            _take_out(file, path)
        else:
            _set(file, path, value)
    text = "\n".join(file.lines)
    values = parse_yaml(text, PARAMS)
    for key, value in new.items():
        if value_of(values, key) != value:
            raise DarkroomError(f"{PARAMS}: `{key}` cannot be set: write it and its section with one key per line.")
    return text


def commented(text: str, comments: Mapping[str, str]) -> str:
    """Return a text with comments after values, by dotted key."""
    lines = (file := _File(text)).lines
    for key, comment in comments.items():
        first, end = file.spans.get(tuple(key.split(".")), (0, 0))
        if end == first + 1 and not re.search(r": +[\[{]", lines[first]):
            head, _, column = _parts(lines[first])
            lines[first] = _line(head, f"# {comment}", column)
    return "\n".join(lines)


class _File:
    """The lines of a file, with the line of each key and the line after the last one of its value."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.spans = _spans(self.lines)

    def replace(self, first: int, end: int, new: list[str]) -> None:
        keys = [[key and key[0] for key in map(_KEY.match, lines)] for lines in (self.lines[first:end], new)]
        self.lines[first:end] = new
        if keys[0] != keys[1] or len(new) != 1:  # a new value on the line of its key moves no key
            self.spans = _spans(self.lines)

    def has_keys(self, path: Path) -> bool:
        return any(other[: len(path)] == path != other for other in self.spans)


def _spans(lines: list[str]) -> dict[Path, tuple[int, int]]:
    """Return the line of each key, and the line after the last one of its value."""
    spans: dict[Path, tuple[int, int]] = {}
    stack: list[tuple[int, Path]] = []  # the keys around a line, with their indents
    item = None  # the indent of the list whose items are skipped
    for number, line in enumerate(lines):
        bare = line.lstrip(" ")
        indent, is_item = len(line) - len(bare), bare == "-" or bare.startswith("- ")
        if not bare or bare.startswith("#"):
            continue
        if not is_item and (item is None or indent <= item):
            item = None
            if match := _KEY.match(line):
                while stack and stack[-1][0] >= indent:
                    stack.pop()
                path = (*(stack[-1][1] if stack else ()), match[2].strip("\"'"))
                stack.append((indent, path))
                spans[path] = number, number + 1
        elif is_item and item is None:
            while stack and stack[-1][0] > indent:
                stack.pop()
            item = indent
        for _, path in stack:
            spans[path] = spans[path][0], number + 1
    return spans


def _parts(line: str) -> tuple[str, str, int]:
    """Return a line up to its comment, the comment, and its column."""
    match = re.match(rf"({_KEY.pattern}{_VALUE}) *(#.*)?", line)
    assert match is not None
    comment = match[match.re.groups] or ""
    return match[1], comment, match.start(match.re.groups) if comment else _COLUMN


def _line(head: str, comment: str, column: int) -> str:
    return f"{head:<{column - 1}} {comment}" if comment else head


def _dumped(name: str, value: Any, indent: int) -> list[str]:
    """Return the lines of a key and its value as DVC writes them."""
    yaml, out = YAML(), StringIO()
    yaml.default_flow_style, yaml.width = False, 2**20  # a long text stays on its line, before its comment
    yaml.dump({name: value}, out)
    return [" " * indent + line for line in out.getvalue().rstrip("\n").split("\n")]


def _set(file: _File, path: Path, value: Any) -> None:
    spans, lines = file.spans, file.lines
    if path in spans:
        first, end = spans[path]
        _, comment, column = _parts(lines[first])
        head, *rest = _dumped(path[-1], value, len(lines[first]) - len(lines[first].lstrip()))
        file.replace(first, end, [_line(head, comment, column), *rest])
        return
    depth = next(depth for depth in range(len(path) - 1, -1, -1) if not depth or path[:depth] in spans)
    if depth and not file.has_keys(path[:depth]):
        section = value_of(parse_yaml("\n".join(lines), PARAMS), ".".join(path[:depth]))
        if isinstance(section, Mapping) and section:  # in flow style, or an alias: its other keys stay
            merged = deepcopy(dict(section))
            put(merged, ".".join(path[depth:]), value)
            _set(file, path[:depth], merged)
            return
    for name in reversed(path[depth + 1 :]):
        value = {name: value}
    at, indent = len(lines), 0
    if depth:
        first, end = spans[path[:depth]]
        head, comment, column = _parts(lines[first])
        indent, at = len(head) - len(head.lstrip()) + 2, first + 1
        if not file.has_keys(path[:depth]):  # `{}`, null, or another value
            file.replace(first, end, [_line(head[: head.index(":") + 1], comment, column)])
    file.replace(at, at, _dumped(path[depth], value, indent))


def _take_out(file: _File, path: Path) -> None:
    """Remove a key, and mappings that become empty, except those that dvc.yaml names."""
    if path not in (spans := file.spans):
        return
    file.replace(*spans[path], [])
    above = path[:-1]
    if not above or file.has_keys(above):
        return
    if len(above) > 1 and not _is_named(".".join(above)):
        _take_out(file, above)
    else:
        head, comment, column = _parts(file.lines[first := spans[above][0]])
        file.replace(first, first + 1, [_line(f"{head} {{}}", comment, column)])


def _is_named(key: str) -> bool:
    """Return whether dvc.yaml lists a key under `params`."""
    dvc = read_yaml(DVC)
    named = [template for stage in dvc["stages"] for template in stage_entry(dvc, stage).get("params", [])]
    return any(re.fullmatch(_TEMPLATE.sub("[^.]+", template), key) for template in named)
