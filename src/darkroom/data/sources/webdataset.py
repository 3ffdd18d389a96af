"""Read shards in the layout of webdataset and img2dataset: a folder of tars, or tars at URLs."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from darkroom.data.damage import DamageError, Finding, Reason
from darkroom.data.keys import is_utf8, key_of, shown
from darkroom.data.sample import Entry, Extent, Raw
from darkroom.data.sources.captions import LARGEST, LONGEST, answer_of, caption_of, label_of
from darkroom.data.sources.walk import ENDINGS
from darkroom.data.tar_files import OpenFiles, TarFiles, behind, in_folder, shown_tar, stem_of
from darkroom.data.tars import DamagedTarError, Member, Sample, members, samples, split_name
from darkroom.errors import DarkroomError
from darkroom.params.parts import Webdataset as Settings

_JSON = "json:"
_INTEGER = re.compile(r"-?[0-9]{1,18}")

Findings = tuple[Finding, ...]


class Annotations:
    """Read labels and captions by the settings of the section `webdataset`."""

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
        return text, findings if is_utf8(value) else (*findings, halved)


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
    if not is_utf8(text):
        raise ValueError("the label holds halves of characters")
    return text


_OPEN = 16  # maximum number of open tars: an open tar stays in the cache


class _Place(NamedTuple):
    """The location of a sample's image, the extension of its name, and the locations of its texts."""

    image: Extent
    ending: str
    texts: dict[str, Extent]


class Webdataset:
    """The samples of some tars: shard after shard, in each shard by their keys. A slice counts shards.

    in_place: whether the part is indexed in place.
    unit: the unit of `start` and `stop` of a part.
    tars: the tars by number, as local files.
    """

    unit = "shards"

    def __init__(self, settings: Settings, path: Path | None = None, column: str = "") -> None:
        """Find the tars without opening them.

        Raises:
            DarkroomError: not exactly one of path and `webdataset.url`, no tar, or a URL that is not allowed.
        """
        if (path is None) == (settings.url is None):
            raise DarkroomError(
                "the source `webdataset` needs either a `path`, to a folder of tars or a tar, or `webdataset.url` "
                f"(in its `settings`), but this one has {'neither' if path is None else 'both'}."
            )
        self.in_place = not settings.repack
        self._url = settings.url
        self._image = [ending.lower() for ending in settings.image]
        self._shard_in_key = settings.shard_in_key
        self._stops = settings.damaged_shard == "stop"
        self._annotations = Annotations(settings.label, settings.caption, settings.classes)
        self._group = _JSON + column if column else ""
        self._endings = self._annotations.endings | ({"json"} if column else set())
        self.tars = TarFiles(in_folder(path) if path is not None else behind(str(settings.url)))
        self._files = OpenFiles(self.tars, _OPEN)

    def size(self) -> int | None:
        """Return None: the number of samples is unknown until the tars are read."""
        return None

    def metadata(self) -> dict[str, Any]:
        """Return shards, their number, and url, for remote shards, as written in params.yaml."""
        return {"shards": len(self.tars.names), **({} if self._url is None else {"url": self._url})}

    def entries(self, start: int, stop: int | None) -> Iterator[Entry]:
        """Yield the samples of the shards `start` to `stop` (not included), and entries for missing samples.

        Raises:
            DarkroomError: there are no such shards, or a shard cannot be downloaded, is refused
                (`darkroom.data.tars.members`), or is damaged and `webdataset.damaged_shard` is stop.
        """
        count = len(self.tars.names)
        end = count if stop is None else stop
        if not 0 <= start < end <= count:
            raise DarkroomError(
                f"a part requests shards {start} to {end} of a source with {count}: choose start and stop in "
                f"params.yaml with 0 <= start < stop <= {count}."
            )
        for number in range(start, end):
            self.tars.prefetch(range(number + 1, min(number + 2, end)))
            yield from self._shard(number)

    def read(self, entry: Entry) -> Raw:
        """Return the image as it is stored, its label and its caption."""
        if isinstance(entry.payload, Finding):
            raise DamageError(entry.payload.reason, entry.payload.detail)
        place: _Place = entry.payload
        data = self._bytes(place.image, place.ending, LARGEST)
        texts = {ending: self._bytes(extent, ending, LONGEST) for ending, extent in place.texts.items()}
        label, of_label = self._annotations.label(texts)
        caption, of_caption = self._annotations.caption(texts)
        group = None
        with suppress(ValueError):
            group = _label_text(_value(self._group, texts)) if self._group else None
        return Raw(data, label, caption, data, (*of_label, *of_caption), place.image, group)

    def _bytes(self, extent: Extent, ending: str, limit: int) -> bytes:
        if extent.size > limit:
            raise DamageError(Reason.BOMB, f"a {ending} of {extent.size:,} bytes")
        try:
            data = self._files.read(*extent)
        except OSError as error:
            raise DamageError(Reason.UNREADABLE, error.strerror or str(error)) from error
        if len(data) < extent.size:
            raise DamageError(Reason.TRUNCATED, "the tar became shorter while it was read")
        return data

    def _shard(self, number: int) -> Iterator[Entry]:
        shard = shown_tar(self.tars.names[number])
        readable, unread, damage = list[Member](), list[tuple[str, str]](), None
        try:
            for member in members(self.tars(number), shard, unread):
                readable.append(member)
        except DamagedTarError as error:
            damage = str(error)
            if self._stops:
                raise DarkroomError(
                    f"{shard} is damaged, {damage}. Download it again, or set `webdataset.damaged_shard` to quarantine "
                    "to use the readable samples and list the rest."
                ) from error
        except OSError as error:
            raise DarkroomError(f"{shard} cannot be read: {error.strerror}.") from error
        entries = [entry for sample in samples(readable) for entry in self._entries(number, shard, sample)]
        entries += [_listed(shard, name, Reason.UNREADABLE, detail) for name, detail in unread]
        hidden = [member.name for member in readable if split_name(member.name) is None and self._is_image(member.name)]
        entries += [_listed(shard, name, Reason.PASSED_OVER, "hidden, or metadata of the shard") for name in hidden]
        if self._shard_in_key:
            entries = [replace(entry, key=key_of(f"{stem_of(shard)}-{entry.key}")) for entry in entries]
        yield from sorted(entries, key=lambda entry: entry.key)
        if damage is not None:
            yield Entry(key_of(stem_of(shard)), shard, Finding(Reason.DAMAGED_SHARD, damage))

    def _entries(self, number: int, shard: str, sample: Sample) -> Iterator[Entry]:
        """Yield the entry of a sample, and one for each image of it that is not read."""
        key, parts = sample
        places = {ending: Extent(number, part.offset, part.size) for ending, part in parts.items()}
        chosen = next((ending for ending in self._image if ending in places), None)
        images = [part.name for ending, part in parts.items() if ending != chosen and self._is_image(part.name)]
        reason, detail = Reason.MISSING, "its ending is none of `webdataset.image`"
        if chosen is not None:
            texts = {name: places[name] for name in self._endings if name in places}
            place = _Place(places[chosen], chosen, texts)
            yield Entry(key_of(key), f"{shard}: {shown(key)}", place, name=shown(key))
            reason, detail = Reason.PASSED_OVER, f"its sample has a .{chosen}, which is read (`webdataset.image`)"
        elif not images:
            endings = ", ".join(shown(ending) or "one without an ending" for ending in sorted(places))
            yield _listed(shard, key, Reason.MISSING, f"no image among its members ({endings})")
        yield from (_listed(shard, name, reason, detail) for name in images)

    def _is_image(self, name: str) -> bool:
        """Return whether a member has the ending of an image, or one that the settings name."""
        ending = name.rpartition("/")[2].partition(".")[2].lower()
        return ending in self._image or ending.rpartition(".")[2] in ENDINGS


def _listed(shard: str, name: str, reason: Reason, detail: str) -> Entry:
    return Entry(key_of(name), f"{shard}: {shown(name)}", Finding(reason, detail))
