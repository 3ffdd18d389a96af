"""Writes what `darkroom init` proposes into params.yaml, reasons as comments."""

import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import CommentMark
from ruamel.yaml.tokens import CommentToken

from darkroom.artifacts.atomic import write_bytes
from darkroom.check.check import check, validated
from darkroom.dag.hashable import printable
from darkroom.dag.stages import FOREACH
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.yaml_text import parse_yaml
from darkroom.tools.init.reasons import Choice, usual_reason
from darkroom.tools.init.request import Request
from darkroom.tools.preset import laid_over

MARK = "# Written by `darkroom init"
BEFORE = Path(".darkroom/params-before-init.yaml")  # params.yaml as it was before the first `darkroom init`
LAST = Path(".darkroom/params-before-last-init.yaml")  # and as it was before the last one
DRY = Path(".darkroom/params-before-dry-run.yaml")  # and while one runs that writes nothing
_END = "# What it began from follows; reasons stand behind the values that it chose."
_COLUMN = 26  # in which the comments of params.yaml begin
_ENTRIES = sorted({*FOREACH.values(), "sample_decoder.unets"})  # mappings whose entries are a person's


def begin_from() -> tuple[str, list[str]]:
    """Return the text that is changed: params.yaml, or where that is of an earlier `darkroom init`, what it began from.

    So a second call means the same whatever the first one asked for. Where what it began from is older than the
    schema, params.yaml as it is, and a sentence on it.
    """
    text, notes = PARAMS.read_text(encoding="utf-8"), list[str]()
    if not text.startswith(MARK):
        return text, []
    if BEFORE.is_file():
        before = BEFORE.read_text(encoding="utf-8")
        try:
            validated(parse_yaml(before, BEFORE))
        except DarkroomError as error:  # of an earlier version of Darkroom
            why = str(error).splitlines()[0]
            notes = [f"It began from params.yaml as it was; {BEFORE} is not valid any more: {why}"]
        else:
            return before, []
    # Or of another clone, where it was committed: its values, without what was said of them.
    head, _, rest = text.partition(f"{_END}\n")
    return rest or head, notes


@contextmanager
def restored(dry_run: bool = False) -> Iterator[Callable[[str], None]]:
    """Give params.yaml back as it was, unless the block keeps another text.

    What was there is kept in `.darkroom` before anything is written, so a process that is killed loses nothing; of a
    dry run in a file that goes with it, so that what the last one replaced stays. SIGTERM gives it back at once.
    """
    was = PARAMS.read_bytes()
    LAST.parent.mkdir(exist_ok=True)
    write_bytes(DRY if dry_run else LAST, was)
    if not was.decode("utf-8").startswith(MARK):
        write_bytes(BEFORE, was)
    kept: list[str] = []

    def give_back(number: int, frame: object) -> None:
        write_bytes(PARAMS, was)  # at once: a stage that is measured may take a while to end
        sys.exit(128 + number)

    handler = signal.signal(signal.SIGTERM, give_back)
    try:
        yield kept.append
    finally:
        write_bytes(PARAMS, kept[0].encode() if kept else was)
        DRY.unlink(missing_ok=True)
        signal.signal(signal.SIGTERM, handler)


def header(request: Request, text: str) -> str:
    """Return what stands at the head of params.yaml: the command, and what it found and decided."""
    return "\n".join([f"{MARK} {request.command()}`.", *text.splitlines()])


def text_of(before: str, choices: Mapping[str, Choice], head: str = f"{MARK}`.") -> str:
    """Return the text of params.yaml with the chosen values, and their reasons behind them.

    Parts and U-Nets that are not chosen go.

    Args:
        before: the text that is changed.
        choices: by dotted key.
        head: the first comment, lines; the first begins with MARK.

    Raises:
        DarkroomError: what comes out is not valid.
    """
    new: dict[str, Any] = {key: choice.value for key, choice in choices.items()}
    entries = {over: found for over in _ENTRIES if (found := _entries(new, over))}
    yaml = YAML()
    yaml.default_flow_style = False
    document = yaml.load(before)
    for over, found in entries.items():
        *path, last = over.split(".")
        _replace(_at(document, path), last, found)
    out = StringIO()
    yaml.dump(document, out)
    rest = {key: value for key, value in new.items() if not any(key.startswith(f"{over}.") for over in entries)}
    # A key that is new in its section is put first, so the last one goes first.
    text = laid_over(out.getvalue(), dict(reversed(rest.items())))
    text = _commented(text, {key: choice.reason for key, choice in choices.items()})
    first, *others = head.split("\n")
    comments = [printable(line) for line in (first, *(f"# {line}".rstrip() for line in others))]
    text = "\n".join([*comments, "#", _END, text])
    check(parse_yaml(text, PARAMS))
    return text


def _at(document: Any, path: Sequence[str]) -> Any:
    for name in path:
        document = document[name]
    return document


def _entries(new: Mapping[str, Any], over: str) -> dict[str, Any]:
    """Return the chosen parts or U-Nets as nested mappings."""
    found: dict[str, Any] = {}
    for key, value in new.items():
        if key.startswith(f"{over}."):
            *path, last = key.removeprefix(f"{over}.").split(".")
            place = found
            for name in path:
                place = place.setdefault(name, {})
            place[last] = value
    return found


def _replace(holder: CommentedMap, name: str, entries: Mapping[str, Any]) -> None:
    """Put other entries in the place of those of a mapping; the comments behind its last line stay behind."""
    behind = _behind(holder[name])
    new = _mapping(entries)
    holder[name] = new
    if behind:
        last = new
        while isinstance(last[list(last)[-1]], CommentedMap) and last[list(last)[-1]]:
            last = last[list(last)[-1]]
        last.ca.items[list(last)[-1]] = [None, None, CommentToken(f"\n{behind}", CommentMark(0), None), None]


def _mapping(values: Mapping[str, Any]) -> CommentedMap:
    return CommentedMap(
        (name, _mapping(value) if isinstance(value, Mapping) else value) for name, value in values.items()
    )


def _behind(value: Any) -> str:
    """Return the lines of comments and empty lines behind the last line of a nested value."""
    comments = None
    while isinstance(value, CommentedMap | CommentedSeq) and len(value):
        last = list(value)[-1] if isinstance(value, CommentedMap) else len(value) - 1
        comments, value = (value.ca.items.get(last), isinstance(value, CommentedMap)), value[last]
    if comments is None or comments[0] is None:
        return ""
    token = comments[0][2 if comments[1] else 0]
    return token.value.partition("\n")[2] if token is not None else ""


def _commented(text: str, reasons: Mapping[str, str]) -> str:
    """Return a document with comments behind the values of some keys; "": the usual one, where none stands there."""
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 4096
    document = yaml.load(text)
    for key, reason in reasons.items():
        *path, last = key.split(".")
        place = document
        for part in path:
            place = place[part]
        if last in place and not isinstance(place[last], list | dict):
            _comment(place, last, reason, usual_reason(key))
    out = StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def _comment(place: CommentedMap, key: str, reason: str, usual: str) -> None:
    """Put a comment behind a value, in place of the one that stands there; what follows in other lines stays."""
    tokens = place.ca.items.get(key)
    token = tokens[2] if tokens is not None else None
    if not reason and (not usual or (token is not None and token.value.startswith("#"))):
        return
    reason = reason or usual
    said = f"# {reason}\n"
    if token is None:
        place.ca.items[key] = [None, None, CommentToken(said, CommentMark(_COLUMN), None), None]
    elif token.value.startswith("#"):
        token.value = said + token.value.partition("\n")[2]
    else:  # lines that stand behind a value without a comment
        rest = token.value.removeprefix("\n")
        place.ca.items[key] = [None, None, CommentToken(said + rest, CommentMark(_COLUMN), None), None]
