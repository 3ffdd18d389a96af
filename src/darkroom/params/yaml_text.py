"""Parse YAML as DVC does: YAML 1.2, where `050` is fifty, `yes` is a string, and duplicate keys are errors.

Unlike DVC's, the error messages name the file and the line.
"""

import pickle
import re
from functools import lru_cache
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from darkroom.errors import DarkroomError

# The parser, like DVC's, raises these for a scalar that only looks like a date or a number: 2024-13-45, `+_`.
_UNREADABLE = (ValueError, LookupError, TypeError)
_CONFLICT = re.compile(r"^(?:<{7}|={7}|>{7})(?= |$)", re.MULTILINE)


def conflict(text: str) -> int | None:
    """Return the line, from 1, of the first merge conflict marker of git."""
    marker = _CONFLICT.search(text)
    return text.count("\n", 0, marker.start()) + 1 if marker else None


@lru_cache(maxsize=64)  # presets, params.yaml and its versions
def _pickled(text: str) -> bytes:
    return pickle.dumps(YAML(typ="safe").load(text))


def parse_plain(text: str) -> Any:
    """Return the value of one YAML document, as DVC would read it. Raises what the parser raises.

    A text is parsed once in a process, which for params.yaml takes 30 ms; each call returns a copy.
    """
    return pickle.loads(_pickled(text))


def parse_yaml(text: str, file: object) -> Any:
    """Return the value of one YAML document, as DVC would read it; messages call it `file`.

    Raises:
        DarkroomError: it is not valid YAML, a key occurs twice in a mapping, or git left the markers of a merge; names
            the file, the line and the column.
    """
    try:
        return parse_plain(text)
    except (YAMLError, *_UNREADABLE) as error:
        if line := conflict(text):
            raise DarkroomError(
                f"{file}, line {line}: this is a Git merge conflict marker: keep one of the two versions below it."
            ) from None
        place, parts = "", [str(error)]
        if isinstance(error, MarkedYAMLError):
            parts, mark = [part for part in (error.context, error.problem) if part], error.problem_mark
            place = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
        reason = " ".join(", ".join(parts).split())
        raise DarkroomError(f"{file} is not valid YAML: {place}{reason}.") from None
