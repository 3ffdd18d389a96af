"""Write the settings of `darkroom init` to params.yaml, with reasons as comments."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from darkroom.artifacts.atomic import write_bytes
from darkroom.check.check import check, validated
from darkroom.dag.hashable import printable
from darkroom.dag.stages import FOREACH
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.yaml_text import parse_yaml
from darkroom.tools.editing import commented, laid_over, put
from darkroom.tools.init.request import Request

MARK = "# Written by `darkroom init"
BEFORE = Path(".darkroom/params-before-init.yaml")  # params.yaml as it was before the first `darkroom init`
LAST = Path(".darkroom/params-before-last-init.yaml")  # and as it was before the last one
_END = "# What it began from follows; reasons stand behind the values that it chose."
_ENTRIES = sorted({*FOREACH.values(), "sample_decoder.unets"})  # mappings whose entries the user names


class Choice(NamedTuple):
    """The value of a key (DEFAULT_VALUE removes the key), and a short reason, which may be empty."""

    value: Any
    reason: str = ""


def begin_from() -> str:
    """Return the text to change: params.yaml, or if `darkroom init` wrote that, its text before the first call.

    So the result of a second call does not depend on the first. If the earlier text is missing, as in another clone, or
    no longer valid, return its values: params.yaml without the comments.
    """
    text = PARAMS.read_text(encoding="utf-8")
    if not text.startswith(MARK):
        return text
    if BEFORE.is_file():
        with suppress(DarkroomError):  # of an earlier version of Darkroom
            before = BEFORE.read_text(encoding="utf-8")
            validated(parse_yaml(before, BEFORE))
            return before
    head, _, rest = text.partition(f"{_END}\n")
    return rest or head


@contextmanager
def restored() -> Iterator[Callable[[str], None]]:
    """Restore params.yaml at the end of the block, unless the block keeps another text.

    The old text is saved in `.darkroom` before anything is written, so a killed process loses nothing.
    """
    was = PARAMS.read_bytes()
    LAST.parent.mkdir(exist_ok=True)
    write_bytes(LAST, was)
    if not was.decode("utf-8").startswith(MARK):
        write_bytes(BEFORE, was)
    texts: list[str] = []
    try:
        yield texts.append
    finally:
        write_bytes(PARAMS, texts[0].encode() if texts else was)


def header(request: Request, text: str) -> str:
    """Return the head of params.yaml: the command, its findings and its decisions."""
    return "\n".join([f"{MARK} {request.command()}`.", *text.splitlines()])


def text_of(before: str, choices: Mapping[str, Choice], head: str = f"{MARK}`.") -> str:
    """Return the text of params.yaml with the chosen values, and their reasons behind them.

    Parts and U-Nets that are not chosen are removed.

    `choices` are by dotted key; `head` is the first comment, which begins with MARK.

    Raises:
        DarkroomError: the result is not valid.
    """
    new = {key: choice.value for key, choice in choices.items()}
    blocks: dict[str, Any] = {}
    for over in _ENTRIES:
        for key in [key for key in new if key.startswith(f"{over}.")]:
            put(blocks.setdefault(over, {}), key.removeprefix(f"{over}."), new.pop(key))
    # A key that is new in its section is put first, so the last one goes first.
    text = laid_over(before, {**blocks, **dict(reversed(new.items()))})
    text = commented(text, {key: each.reason for key, each in choices.items() if each.reason})
    first, *others = head.split("\n")
    comments = [printable(line) for line in (first, *(f"# {line}".rstrip() for line in others))]
    text = "\n".join([*comments, "#", _END, text])
    check(parse_yaml(text, PARAMS))
    return text
