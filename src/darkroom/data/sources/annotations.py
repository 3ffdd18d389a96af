"""Labels and captions from the members of a webdataset sample: a text, a number, or a field of its JSON."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from darkroom.data.damage import Finding, Reason
from darkroom.data.sources.captions import answer_of, caption_of
from darkroom.data.sources.labels import label_of

_JSON = "json:"
_INTEGER = re.compile(r"-?[0-9]{1,18}")

Findings = tuple[Finding, ...]


class Annotations:
    """Reads labels and captions by the settings of the section `webdataset`.

    Args:
        label, caption: the extension of a member, or `json:FIELD`; None: there are none.
        classes: the class names in the order of their integers; None: a label is its own name.
    """

    def __init__(self, label: str | None, caption: str | None, classes: Sequence[str] | None) -> None:
        self._label, self._caption, self._classes = label, caption, classes
        named = [setting for setting in (label, caption) if setting is not None]
        self.endings = {"json" if setting.startswith(_JSON) else setting.lower() for setting in named}

    def label(self, texts: Mapping[str, bytes]) -> tuple[str | None, Findings]:
        """Return the label from the content of members, by their extensions, and findings."""
        if self._label is None:
            return None, ()
        try:
            text = _label_text(_value(self._label, texts))
        except ValueError as error:
            return None, (Finding(Reason.LABEL_MISSING, str(error)),)
        if self._classes is None:
            return text, ()
        if _INTEGER.fullmatch(text) and 0 <= int(text) < len(self._classes):
            return self._classes[int(text)], ()
        if text in self._classes and not _INTEGER.fullmatch(text):
            return text, ()
        return text, (Finding(Reason.LABEL_OUT_OF_RANGE, f"{text} is none of the {len(self._classes)} classes"),)

    def caption(self, texts: Mapping[str, bytes]) -> tuple[str | None, Findings]:
        """Return the caption from the content of members, by their extensions, and findings."""
        if self._caption is None:
            return None, ()
        try:
            value = answer_of(_value(self._caption, texts))
        except ValueError as error:
            return None, (Finding(Reason.CAPTION_MISSING, str(error)),)
        if isinstance(value, bytes):
            return caption_of(value)
        if not isinstance(value, str):
            return None, (Finding(Reason.CAPTION_MISSING, f"{self._caption} is neither text nor conversation"),)
        # JSON may hold halves of characters (\ud83d alone), which no file can.
        text, findings = caption_of(value.encode("utf-8", "replace"))
        halved = Finding(Reason.CAPTION_NOT_UTF8, "halves of characters, read as `?`")
        return text, findings if _whole(value) else (*findings, halved)


def _value(setting: str, texts: Mapping[str, bytes]) -> Any:
    """Return the value of a setting: the bytes of a member, or a field of its JSON. Raises ValueError with a reason."""
    name = setting.removeprefix(_JSON)
    ending = setting.lower() if name == setting else "json"
    if ending not in texts:
        raise ValueError(f"no {ending} among its members")
    if name == setting:
        return texts[ending]
    try:
        metadata = json.loads(texts[ending])
    except (ValueError, RecursionError):
        raise ValueError("its json member is not JSON") from None
    if not isinstance(metadata, dict) or metadata.get(name) is None:
        raise ValueError(f"its json member has no {name}")
    return metadata[name]


def _label_text(value: Any) -> str:
    """Return a label as text. Raises ValueError with a reason."""
    if isinstance(value, bytes):
        try:
            value = value.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise ValueError("the label is not UTF-8") from None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, str | int | float) or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError("the label is neither text nor number")
    text = label_of(str(value))
    if text is None:
        raise ValueError("the label is empty")
    if not _whole(text):
        raise ValueError("the label holds halves of characters")
    return text


def _whole(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)
