"""Decodes the captions in text files of unknown encoding; what is no text gives no caption."""

import codecs
import unicodedata
from collections.abc import Iterable
from contextlib import suppress

from darkroom.data.damage import Finding, Reason

_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
_ASCII = 0.6  # minimum fraction of ASCII in Windows-1252: of text 0.8 and more, of random bytes that print 0.43
_SHORT = 4  # characters: a text of so few may be all accented letters
_CERTAIN = 32  # characters of Windows-1252: of fewer that are random up to one text in five is mostly ASCII
_WORDS = 2 / 3  # minimum fraction of letters, digits and blanks in these
_SIGNS = frozenset("°€£©®×±´¨™\t\r\n")  # symbols and control codes that these may have, beside those of ASCII
_ALPHABETS = {*range(1, 0x20)} - {*b"\t\n\v\f\r"}  # higher bytes of letters in UTF-16, and control codes of a text
_CONTROLS = 0.1  # maximum fraction of control codes in UTF-8
_NOT_TEXT = "its file is not text in UTF-8, UTF-16 or Windows-1252: convert it to UTF-8"


def caption_of(data: bytes) -> tuple[str | None, tuple[Finding, ...]]:
    """Return the caption in the bytes of a file, and findings.

    A byte order mark, trailing line ends and NULs are removed. Bytes that are not UTF-8 are decoded as UTF-32 or UTF-16
    where they begin with its byte order mark; as UTF-16 without one where they hold NULs, or one control code as every
    second byte, and give letters of one script; as Windows-1252 where most of them are ASCII. Nothing else is guessed:
    it is no text. UTF-16 of CJK with neither mark nor NULs may be ASCII, and is read as that: 猫 is +s.
    """
    text, how = _decoded(data)
    if text is None:
        return None, (Finding(Reason.CAPTION_MISSING, _NOT_TEXT),)
    text = text.rstrip("\r\n")
    if not text.strip():
        return None, (Finding(Reason.CAPTION_MISSING, "the caption is empty"),)
    return text, (Finding(Reason.CAPTION_NOT_UTF8, how),) if how else ()


def _decoded(data: bytes) -> tuple[str | None, str]:
    """Return the text, None where there is none, and how it was decoded, "" where it is UTF-8."""
    for mark, name in _MARKS.items():
        if data.startswith(mark):
            text = data.decode(name, "replace")
            return (text, f"read as {name}") if _is_text(text) else (None, "")
    plain = data.rstrip(b"\0")  # of UTF-16 in ASCII the last byte: the text has others, or is one character
    if b"\0" in plain:
        # Where there is ASCII, the other order gives letters of CJK, so the order with its NULs comes first.
        little = data[1::2].count(0) >= data[::2].count(0)
        return _wide(data, ("utf-16-le", "utf-16-be") if little else ("utf-16-be", "utf-16-le"))
    if codec := _of_an_alphabet(data):
        return _wide(data, (codec,))
    try:
        text = plain.decode("utf-8-sig")
    except UnicodeDecodeError:
        return (plain.decode("cp1252"), "read as Windows-1252") if _is_latin(plain) else (None, "")
    if sum(map(_is_control, text)) > _CONTROLS * len(text):
        return None, ""
    return text, "" if len(plain) == len(data) else "NULs behind the text"


def _of_an_alphabet(data: bytes) -> str | None:
    """Return the order of bytes in which all letters of UTF-16 have one higher byte, as those of a word in Cyrillic."""
    if len(data) < 4 or len(data) % 2:
        return None
    ordered = {"utf-16-le": {*data[1::2]}, "utf-16-be": {*data[::2]}}
    return next((codec for codec, higher in ordered.items() if len(higher) == 1 and higher <= _ALPHABETS), None)


def _wide(data: bytes, codecs: Iterable[str]) -> tuple[str | None, str]:
    """Return the text of UTF-16 in the first order of bytes that gives one, None where none does, and the finding."""
    for codec in codecs:
        with suppress(UnicodeDecodeError):
            text = data.decode(codec).rstrip("\0")
            if _is_text(text) and len({_script(letter) for letter in text} - {""}) <= 1:
                return text, "read as UTF-16 without a byte order mark"
    return None, ""


def _script(letter: str) -> str:
    """Return the first word of a letter's name, as CYRILLIC; "" of Latin letters, digits and signs, as in any text."""
    name = unicodedata.name(letter, "").partition(" ")[0] if letter.isalpha() else "LATIN"
    return {"LATIN": "", "HIRAGANA": "CJK", "KATAKANA": "CJK", "FULLWIDTH": "CJK"}.get(name, name)


def _is_control(letter: str) -> bool:
    return unicodedata.category(letter) == "Cc" and not letter.isspace()


def _is_text(text: str) -> bool:
    """Return whether all characters are assigned, and none is a control code, a surrogate or for private use."""
    return all(letter.isspace() or unicodedata.category(letter) not in ("Cc", "Cn", "Co", "Cs") for letter in text)


def _is_latin(data: bytes) -> bool:
    try:
        text = data.decode("cp1252")
    except UnicodeDecodeError:  # a byte that it does not have
        return False
    if len(text.strip()) <= _SHORT:
        return all(letter.isalpha() or (letter.isspace() and not _is_sign(letter)) for letter in text)
    if len(text) < _CERTAIN:
        words = sum(letter.isalnum() or letter.isspace() for letter in text)
        if words < _WORDS * len(text) or any(_is_sign(letter) for letter in text):
            return False
    return _is_text(text) and sum(letter.isascii() for letter in text) >= _ASCII * len(text)


def _is_sign(letter: str) -> bool:
    """Return whether a letter is a symbol or a control code, but for the usual ones."""
    usual = letter in _SIGNS or (letter.isascii() and letter.isprintable())
    return unicodedata.category(letter)[0] in "SC" and not usual
