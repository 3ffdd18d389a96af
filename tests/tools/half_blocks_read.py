"""Reads half blocks back as pixels, as a terminal would show them."""

import re

import numpy as np

_PIECES = re.compile(r"\x1b\[([0-9;]*)m|(.)")


def pixels_of(text: str) -> np.ndarray:
    """Return the colours of lines of half blocks, int (2 * lines, columns, 3); -1 where nothing is drawn."""
    lines = [_line(line) for line in text.split("\n")]
    width = max(len(line) for line in lines)
    found = np.full((2 * len(lines), width, 3), -1)
    for y, line in enumerate(lines):
        for x, pair in enumerate(line):
            found[2 * y : 2 * y + 2, x] = pair
    return found


def _line(text: str) -> list[tuple[list[int], list[int]]]:
    nothing = [-1, -1, -1]
    upper, lower, found = nothing, nothing, []
    for codes, letter in _PIECES.findall(text):
        if letter:
            found.append((upper, lower) if letter == "▀" else (nothing, nothing))
            continue
        numbers = [int(code) for code in codes.split(";") if code]
        while numbers:
            code = numbers.pop(0)
            colour = nothing
            if code in (38, 48) and numbers.pop(0) == 2:
                colour, numbers = numbers[:3], numbers[3:]
            elif code in (38, 48):
                level = numbers.pop(0) - 16
                colour = [(0, 95, 135, 175, 215, 255)[each] for each in (level // 36, level // 6 % 6, level % 6)]
            upper = colour if code in (0, 38) else upper
            lower = colour if code in (0, 48, 49) else lower
    return found
