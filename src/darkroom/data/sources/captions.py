"""Decodes the captions in text files of unknown encoding."""

import codecs

from darkroom.data.damage import Finding, Reason


def caption_of(data: bytes) -> tuple[str | None, tuple[Finding, ...]]:
    """Return the caption in the bytes of a file, and findings.

    A byte order mark and trailing line ends are removed. Bytes that are not UTF-8 are decoded as UTF-16 where they
    begin with its byte order mark, else as Windows-1252, in which nearly all bytes are a letter.
    """
    findings: tuple[Finding, ...] = ()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        text = data.decode("utf-16" if wide else "cp1252", "replace")
        findings = (Finding(Reason.CAPTION_NOT_UTF8, f"read as {'UTF-16' if wide else 'Windows-1252'}"),)
    text = text.rstrip("\r\n")
    if not text.strip():
        return None, (Finding(Reason.CAPTION_MISSING, "the caption is empty"),)
    return text, findings
