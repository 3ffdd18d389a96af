"""YAML as DVC reads it, by the same parser: YAML 1.2, where `050` is fifty, `yes` a text, and no key stands twice.

What is added are sentences that name the file and the line, where DVC refuses without one.
"""

import re
from collections.abc import Iterator
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, StreamMark, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from darkroom.errors import DarkroomError

# What the parser raises, and DVC with it, for a scalar that only looks like a date or a number: 2024-13-45, `+_`.
_UNREADABLE = (ValueError, LookupError, TypeError)
_CONFLICT = re.compile(r"^(?:<{7}|={7}|>{7})(?= |$)", re.MULTILINE)


def conflict(text: str) -> int | None:
    """Return the line, from 1, of the first marker that git left where two versions contradict each other."""
    found = _CONFLICT.search(text)
    return text.count("\n", 0, found.start()) + 1 if found else None


def parse_yaml(text: str, file: object) -> Any:
    """Return the value of one YAML document, as DVC would read it.

    Args:
        text: the document.
        file: what the sentences call it.

    Raises:
        DarkroomError: it is not valid YAML, a key stands twice in a mapping, or git left the markers of a merge; names
            the file, the line and the column.
    """
    try:
        return YAML(typ="safe").load(text)
    except DuplicateKeyError as error:
        raise DarkroomError(_twice(text, file, error)) from None
    except (YAMLError, *_UNREADABLE) as error:
        if line := conflict(text):
            raise DarkroomError(
                f"{file}, line {line}: git left the marker of a merge there: keep one of the two versions below it."
            ) from None
        raise DarkroomError(f"{file} is not valid YAML: {_where(text, error)}{_reason(error)}.") from None


def _where(text: str, error: Exception) -> str:
    """Return the line and the column of an error, as far as they are known."""
    if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
        return _place(error.problem_mark)
    if not isinstance(error, YAMLError):
        for _, node in _nodes(YAML(typ="safe").compose(text)):
            try:
                if isinstance(node, ScalarNode):
                    YAML(typ="safe").load(node.value)
            except _UNREADABLE:
                return _place(node.start_mark)
            except YAMLError:  # a text in quotes that is no YAML by itself
                continue
    return ""


def _place(mark: StreamMark) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}: "


def _reason(error: Exception) -> str:
    parts = (error.context, error.problem) if isinstance(error, MarkedYAMLError) else (str(error),)
    return " ".join(", ".join(filter(None, parts)).split())


def _twice(text: str, file: object, error: DuplicateKeyError) -> str:
    """Return a sentence on a key that stands twice, with its dotted name and both lines."""
    line = error.problem_mark.line
    for names, mapping in _nodes(YAML(typ="safe").compose(text)):
        seen: dict[tuple[str, str], Node] = {}
        for key, _ in mapping.value if isinstance(mapping, MappingNode) else ():
            first = seen.setdefault((key.tag, str(key.value)), key)
            if first is not key and key.start_mark.line == line:
                name, before = ".".join((*names, str(key.value))), first.start_mark.line + 1
                return f"{file}, line {line + 1}: `{name}` stands twice, first in line {before}: keep one of them."
    return f"{file}, line {line + 1}: a key stands twice in its mapping: keep one of them."


def _nodes(node: Node, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Node]]:
    """Yield all nodes of a document, each with the keys that lead to it; a key with those of its mapping."""
    yield names, node
    if isinstance(node, MappingNode):
        for key, value in node.value:
            yield from _nodes(key, names)
            yield from _nodes(value, (*names, str(key.value)))
    elif isinstance(node, SequenceNode):
        for at, value in enumerate(node.value):
            yield from _nodes(value, (*names, str(at)))
