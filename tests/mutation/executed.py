"""A pytest plugin that reports which of some lines each test file executes, in this process and in its forks.

`MUTATION_LINES` names a file with {path: lines}; `MUTATION_HITS` one that gets `test file <TAB> path:line` a line.
"""

import json
import os
import sys
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

LINES = {path: set(lines) for path, lines in json.loads(Path(os.environ["MUTATION_LINES"]).read_text()).items()}
HITS = Path(os.environ["MUTATION_HITS"])
seen: set[str] = set()
current = ""


@cache
def has_some(code: CodeType) -> bool:
    return not LINES[code.co_filename].isdisjoint(line for *_, line in code.co_lines())


def in_function(frame: FrameType, event: str, _: Any) -> Any:
    hit = f"{current}\t{frame.f_code.co_filename}:{frame.f_lineno}\n"
    if event == "line" and frame.f_lineno in LINES[frame.f_code.co_filename] and hit not in seen:
        seen.add(hit)
        with HITS.open("a") as file:
            file.write(hit)
    return in_function


def entered(frame: FrameType, event: str, _: Any) -> Any:
    return in_function if frame.f_code.co_filename in LINES and has_some(frame.f_code) else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    global current
    current = item.path.as_posix()
    sys.settrace(entered)
    threading.settrace(entered)
    return (yield)
