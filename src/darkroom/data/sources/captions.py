"""Read captions and labels from texts of unknown encoding and from conversations; other data give none."""

import codecs
import json
import re
import unicodedata
from contextlib import suppress
from typing import Any

from darkroom.data.damage import Finding, Reason

# Limits on the size of the files of one sample.

LARGEST = 2**30  # maximum bytes of an image
LONGEST = 2**24  # maximum bytes of a label, a caption or a JSON


def label_of(text: str) -> str | None:
    """Return a label without surrounding blanks and in Unicode form NFC; None where it is empty.

    macOS writes an é in file names as two characters, other systems as one: both are the same class.
    """
    return unicodedata.normalize("NFC", text).strip() or None


def split_repeats(folder: str) -> tuple[int | None, str]:
    """Return repeat count and class of a folder REPEATS_CLASS, as kohya's trainers read it; else None and its name."""
    count, _, name = folder.partition("_")
    named = name and count.isascii() and count.isdigit() and not count.startswith("0")
    return (int(count), name) if named else (None, folder)


_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
_ASCII = 0.6  # minimum fraction of ASCII in Windows-1252: text has 0.8 or more, random printable bytes 0.43
_SHORT = 4  # characters: a text this short may be all accented letters
_CONTROLS = 0.1  # maximum fraction of control codes in UTF-8
SPEAKER = {"from", "role"}  # keys of a turn in a conversation
_ANSWERS = ("gpt", "assistant", "model", "chatgpt", "bot")  # their values in an answer
_IMAGE = re.compile(r"<\|?/?image[^<>]*>", re.IGNORECASE)  # stands for the image: <image>, <image_1>
_NOT_TEXT = "its file is not text in UTF-8, UTF-16 or Windows-1252: convert it to UTF-8"


def answer_of(value: Any) -> Any:
    """Return the first answer in a conversation, or None; return other values unchanged.

    A conversation is a list of turns, {"from": "gpt", "value": TEXT} as in ShareGPT and LLaVA, or {"role": "assistant",
    "content": TEXT}. Its marks of images, as <image>, are removed.
    """
    if isinstance(value, dict) and value and all(isinstance(each, list) for each in value.values()):
        value = [dict(zip(value, turn, strict=False)) for turn in zip(*value.values(), strict=False)]  # by columns
    if not isinstance(value, list) or not all(isinstance(turn, dict) and turn.keys() & SPEAKER for turn in value):
        return value
    for turn in value:
        text = turn.get("value") or turn.get("content")
        if isinstance(text, str) and str(turn.get("from") or turn.get("role")).lower() in _ANSWERS:
            return _IMAGE.sub("", text).strip()
    return None


def caption_of(data: bytes) -> tuple[str | None, tuple[Finding, ...]]:
    """Return the caption in the bytes of a file or of a value of a table, and findings.

    A byte order mark, trailing line ends and NULs are removed. Bytes are decoded as UTF-32 or UTF-16 where they begin
    with its byte order mark, else as UTF-8, or as Windows-1252 where most are ASCII: without its NULs, UTF-16 of Latin
    letters is either. Other bytes are not text. The caption of a conversation as JSON is its `answer_of`.
    """
    text, note = _decoded(data)
    if text is None:
        return None, (Finding(Reason.CAPTION_MISSING, _NOT_TEXT),)
    if re.match(r"\s*\[\s*\{", text):
        with suppress(ValueError, RecursionError):
            answer = answer_of(json.loads(text))
            text = text if isinstance(answer, list) else (answer or "").encode("utf-8", "replace").decode()
    text = text.replace("\0", "").rstrip("\r\n")  # JSON may hold NULs, too
    if not text.strip():
        return None, (Finding(Reason.CAPTION_MISSING, "the caption is empty"),)
    return text, (Finding(Reason.CAPTION_NOT_UTF8, note),) if note else ()


def _decoded(data: bytes) -> tuple[str | None, str]:
    """Return the text, or None, and a note on its decoding, "" for UTF-8."""
    for mark, name in _MARKS.items():
        if data.startswith(mark):
            text = data.decode(name, "replace").replace("\0", "")
            return (text, f"read as {name}") if _is_text(text) else (None, "")
    plain = data.replace(b"\0", b"")
    with suppress(UnicodeDecodeError):
        text = plain.decode("utf-8-sig")
        controls = sum(unicodedata.category(letter) == "Cc" and not letter.isspace() for letter in text)
        if controls <= _CONTROLS * len(text):
            return text, "" if len(plain) == len(data) else "NULs removed"
    return (plain.decode("cp1252"), "read as Windows-1252") if _is_latin(plain) else (None, "")


def _is_text(text: str) -> bool:
    """Return whether all characters are assigned, and none is a control code, a surrogate or for private use."""
    return all(letter.isspace() or unicodedata.category(letter) not in ("Cc", "Cn", "Co", "Cs") for letter in text)


def _is_latin(data: bytes) -> bool:
    try:
        text = data.decode("cp1252")
    except UnicodeDecodeError:  # a byte that it does not have
        return False
    if len(text.strip()) <= _SHORT:
        return all(letter.isalpha() or letter in " \t\r\n" for letter in text)
    return _is_text(text) and sum(letter.isascii() for letter in text) >= _ASCII * len(text)
