"""Inspect a sample of a source: sizes, colours, classes, captions, duplicates."""

import hashlib
import math
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from darkroom.data.catalog import CHANCE
from darkroom.data.damage import EXCUSED, DamageError, Finding, Reason
from darkroom.data.decoding import open_image
from darkroom.data.draw import drawn
from darkroom.data.grouping import Looks, leakage
from darkroom.data.groups import descriptor, grouped
from darkroom.data.preparing import alpha_range, eight_bits
from darkroom.data.sample import Entry, Raw
from darkroom.data.sources.hub import Hub
from darkroom.data.sources.webdataset import Webdataset
from darkroom.errors import DarkroomError
from darkroom.terminal.terminal import each_with_progress
from darkroom.tools.init.subject import Subject

LOOKED = 2000  # maximum samples that are read
FEWEST = 40  # images that the whole DAG needs
_SECONDS = 12.0  # after which reading stops, if
_ENOUGH = 100  # samples were read
_LONGEST = 77  # tokens of a caption that CLIP can read, start and end included
_LARGEST = 100_000_000  # maximum pixels of an image
_OWN = 0.05  # different captions per captioned image, above which captions say more than classes
_SHARDS = 10  # tars that are listed; if there are more, the number of images is estimated
_TRANSPARENT = 0.05  # fraction of images with transparent pixels, from which alpha is stored
_ALL_GREY = 0.99  # fraction of grey images, from which no colours are stored
_JOINED = 0.05  # fraction of images with a similar one, above which similar images are split together
_GREY = 4  # maximum mean difference of the channels of a grey image, of 255

# Pixel art: few colours and hard edges. Of neighbouring pixels some are equal, but not nearly all, as in flat drawings,
# and nearly all others differ by a step. Measured on sprites, icons, paintings, photographs, digits and drawings.
_COLOURS, _GREYS = 256, 8  # of an image at most
_EQUAL, _STEP, _SOFT = (0.1, 0.93), 8, 0.05  # fraction of equal neighbours; levels of a step; fraction of smaller ones
_WINDOW = 128  # pixels in the middle that are compared, and the largest side of most pixel art
_PIXEL_ART = 2 / 3  # fraction of the images
_LOSS, _CROPPED = 0.05, 0.05  # fraction of an image's area that a crop loses, and of the images, above which it matters


@dataclass(frozen=True)
class Facts:
    """The findings in a sample of a source; fractions are of the readable images.

    looked: samples that were tried; `ingest` leaves out left_out of them: damaged, fully transparent, one pixel, or
        with a repeated key. Failed downloads do not count.
    tokens: 99 % of the captions have at most this many tokens, as counted by CLIP; None without captions.
    keys: keys of the samples that `ingest` stores; assumed for samples that were not read.
    group: the value of `ingest.group`, and why.
    """

    images: int  # readable images that differ, as `ingest` leaves copies out
    looked: int
    left_out: int
    side: tuple[int, int, int]  # 5 %, 50 % and 95 % of the shorter side, pixels
    grey: float  # fraction of images without colour
    classes: dict[str, int]  # images by class among those read, most frequent first; may be empty
    unlabelled: float  # fraction without a class, if there are classes
    captioned: float  # fraction with a caption
    captions: float  # different captions per captioned image, estimated for the whole source
    tokens: int | None
    total: int  # images in the source, including copies and damaged ones
    seconds: float  # of reading an image
    longer: tuple[int, int, int] = (0, 0, 0)  # as `side`, of the longer side
    cropped: float = 0.0  # fraction that loses more than `_LOSS` of its area to a crop to the middle square
    pixel_art: float = 0.0  # fraction of pixel art
    transparent: float = 0.0  # fraction of images with a pixel that is not opaque
    keys: Set[str] = frozenset()
    group: tuple[str, str] = ("key", "")

    @property
    def channels(self) -> str:
        """The channels to store: RGBA if many images have transparent pixels, L if nearly all are grey, else RGB."""
        return "RGBA" if self.transparent >= _TRANSPARENT else "L" if self.grey >= _ALL_GREY else "RGB"

    @property
    def is_pixel_art(self) -> bool:
        """Whether most images are pixel art, and small: larger ones are drawings, or enlarged."""
        return self.pixel_art >= _PIXEL_ART and self.side[1] <= _WINDOW

    @property
    def fit(self) -> str:
        """How images become squares: padded, if a crop cuts many that are no photographs."""
        drawn = self.is_pixel_art or self.channels == "RGBA"
        return "pad" if drawn and self.cropped > _CROPPED else "crop"

    @property
    def stored_side(self) -> tuple[int, int, int]:
        """5 %, 50 % and 95 % of the side that becomes that of the square, pixels."""
        return self.longer if self.fit == "pad" else self.side

    @property
    def most_left_out(self) -> float:
        """The fraction of left-out images, without copies, that `catalog.max_quarantined` bounds.

        Two standard errors above that of the sample, unless all images were inspected.
        """
        count: float = self.left_out
        if count and self.looked < self.total:
            count += 1 + 2 * math.sqrt(count + 1)
        count *= self.total / max(1, self.looked)
        return count / (count + self.images)

    @property
    def has_captions(self) -> bool:
        """Whether most images have a caption, and captions are more specific than classes, if any."""
        return self.may_have_texts and (len(self.classes) < 2 or self.captions > _OWN)

    @property
    def may_have_texts(self) -> bool:
        """Whether most images have a caption, and captions differ."""
        return self.captioned > 0.5 and self.tokens is not None


class _ImageFacts(NamedTuple):
    """The findings for one image."""

    side: int
    longer: int
    pixel_art: bool
    grey: bool
    transparent: bool
    digest: bytes
    may_be_copy: bool
    label: str | None
    caption: str | None
    look: NDArray[np.float32]


def look(subject: Subject) -> Facts:
    """Return the findings in a sample of a source, read in random order for at most some seconds.

    Raises:
        DarkroomError: the number of images of the source is unknown or too small, or none of the tried images can be
            read.
    """
    total, entries = _sampled(subject, LOOKED)
    if total < FEWEST:
        raise DarkroomError(
            f"{total:,} image{' is' if total == 1 else 's are'} too few: scores use held-out images, so {FEWEST} "
            "are needed, and a few hundred for visible results. Add images."
        )
    inspected: dict[str, _ImageFacts | None] = {}
    wrong = Counter[str]()
    looked, excused, detail = 0, 0, ""
    start = time.monotonic()
    for entry in each_with_progress(entries, len(entries), "looking"):
        if looked >= _ENOUGH and time.monotonic() > start + _SECONDS:
            break
        looked += 1
        try:
            if isinstance(entry.payload, Finding):
                raise DamageError(entry.payload.reason)
            inspected[entry.where] = _inspected(subject.source.read(entry))
        except DamageError as error:
            inspected[entry.where] = None
            wrong[error.reason] += 1
            detail = error.detail
            excused += error.reason in EXCUSED
    usable = [one for one in inspected.values() if one is not None]
    if not usable:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in wrong.most_common())
        raise DarkroomError(
            f"none of {looked:,} images that were tried can be read ({reasons}): {detail or 'is it the right source?'}"
        )
    facts = _facts(total, looked, usable, excused, (time.monotonic() - start) / looked)
    if facts.images < FEWEST:
        raise DarkroomError(
            f"only about {facts.images} of {total:,} images are different and readable: at least {FEWEST} are needed, "
            "without copies. Add images."
        )
    setting, why = _group(entries, inspected)
    if setting == "name" and facts.looked < facts.total:
        setting = "auto"  # a rule that holds for a sample may not hold for all, which `ingest` would refuse
    return replace(facts, keys=_keys(entries, inspected), group=(setting, why))


def _group(entries: Sequence[Entry], inspected: Mapping[str, _ImageFacts | None]) -> tuple[str, str]:
    """Return the value of `ingest.group` for the inspected images, without copies, and why."""
    pairs = [(entry.name, one) for entry in entries if (one := inspected.get(entry.where))]
    names, images = zip(*{one.digest: (name, one) for name, one in pairs}.values(), strict=True)
    labels, looks = [one.label for one in images], np.stack([one.look for one in images])
    groups = grouped(names, looks, labels)
    joined = (groups.sizes[groups.numbers] > 1).mean()
    if len(names) < FEWEST or (groups.setting == "similar" and joined <= _JOINED):
        return "key", "neither names nor looks show groups"
    every = np.arange(len(names))  # in random order, so each fifth is a fair sample
    sides = (every[every % 5 > 0], every[::5])
    near = leakage(*(Looks(looks[of], groups.numbers[of], [labels[row] for row in of]) for of in sides))["near"]
    return groups.setting, (
        f"{groups.rule}: {len(groups.sizes):,} groups in {len(names):,} images; without groups, {near:.0%} of those "
        f"held out would have a near twin in training ({CHANCE:.0%} by chance)"
    )


def _keys(entries: Sequence[Entry], inspected: Mapping[str, _ImageFacts | None]) -> set[str]:
    """Return the keys of the entries that `ingest` stores: for copies, the first."""
    keys, digests = set[str](), set[bytes]()
    for entry in sorted(entries, key=lambda entry: entry.where):
        one = inspected.get(entry.where)
        if entry.where not in inspected or (one and not (one.may_be_copy and one.digest in digests)):
            keys.add(entry.key)
            digests |= {one.digest} if one else set()
    return keys


def _inspected(raw: Raw) -> _ImageFacts:
    image = raw.image if isinstance(raw.image, Image.Image) else open_image(raw.image, _LARGEST)
    if not min(image.size):
        raise DamageError(Reason.ZERO_SIZE)
    if image.size == (1, 1):
        raise DamageError(Reason.ONE_PIXEL)
    data = raw.image if isinstance(raw.image, bytes) else image.tobytes()
    small = eight_bits(image).reduce(max(1, min(image.size) // 64)).convert("RGBA")
    pixels = np.asarray(small).reshape(-1, 4).astype(int)
    if not pixels[:, 3].any():
        raise DamageError(Reason.TRANSPARENT)
    solid = pixels[pixels[:, 3] > 127][:, :3]
    grey = bool(len(solid)) and float(np.ptp(solid, axis=1).mean()) <= _GREY
    may_be_copy = raw.identity is not None
    side, longer = sorted(image.size)
    art, transparent = is_pixel_art(image, grey), alpha_range(image)[0] < 255
    digest, look = hashlib.sha256(data).digest(), descriptor(image)
    return _ImageFacts(side, longer, art, grey, transparent, digest, may_be_copy, raw.label, raw.caption, look)


def is_pixel_art(image: Image.Image, grey: bool) -> bool:
    """Return whether an image has few colours and hard edges in its middle."""
    left, top = ((length - min(length, _WINDOW)) // 2 for length in image.size)
    middle = image.crop((left, top, left + min(image.width, _WINDOW), top + min(image.height, _WINDOW)))
    rgba = np.asarray(eight_bits(middle).convert("RGBA"))
    solid = rgba[..., 3] > 127
    if not 2 < len(np.unique(rgba.view(np.uint32)[..., 0][solid])) <= (_GREYS if grey else _COLOURS):
        return False
    pixels = np.where(solid[..., None], rgba, np.float32(np.nan))
    steps = np.concatenate([np.abs(np.diff(pixels, axis=axis)).max(axis=-1).ravel() for axis in (0, 1)])
    steps = steps[steps >= 0]  # of two solid pixels
    equal = (steps == 0).sum() / max(1, len(steps))
    return bool(_EQUAL[0] <= equal <= _EQUAL[1] and (steps[steps > 0] < _STEP).mean() <= _SOFT)


def _facts(total: int, looked: int, usable: Sequence[_ImageFacts], excused: int, seconds: float) -> Facts:
    count = len(usable)
    images = round(total * count / looked)  # that can be read
    sides = np.percentile([(each.side, each.longer) for each in usable], [5, 50, 95], axis=0).astype(int)
    side, longer = map(tuple, sides.T.tolist())
    labels = Counter(each.label for each in usable if each.label is not None)
    captions = Counter(each.caption for each in usable if each.caption)
    captioned = sum(captions.values()) / count
    copies = all(each.may_be_copy for each in usable)
    different = _different(images, Counter(each.digest for each in usable).values())
    return Facts(
        images=different if copies else total,
        looked=looked,
        left_out=looked - count - excused,
        side=side,
        longer=longer,
        cropped=sum(each.side < (1 - _LOSS) * each.longer for each in usable) / count,
        pixel_art=sum(each.pixel_art for each in usable) / count,
        grey=sum(each.grey for each in usable) / count,
        classes=dict(labels.most_common()),
        unlabelled=1 - sum(labels.values()) / count if labels else 0.0,
        captioned=captioned,
        captions=_different(with_one, captions.values()) / with_one if (with_one := round(images * captioned)) else 0.0,
        tokens=_tokens(list(captions)) if len(captions) > 1 else None,
        total=total,
        seconds=seconds,
        transparent=sum(each.transparent for each in usable) / count,
    )


def _different(images: int, times: Collection[int]) -> int:
    """Estimate the number of different images, or captions, of a source from their frequencies in a sample.

    M = d + f1² / (2 f2 n / (n - 1) + f1 q / (1 - q)): a sample of n, a fraction q of all, has d different ones, f1 of
    them once and f2 twice (Chao and Lin, 2012).
    """
    often = Counter(times)
    looked, once, twice = sum(times), often[1], often[2]
    if looked >= images or not once:
        return len(times)
    unseen = once**2 / (2 * twice * looked / max(1, looked - 1) + once * looked / (images - looked))
    return min(images, round(len(times) + unseen))


def _tokens(captions: Sequence[str]) -> int:
    """Return the 99th percentile of the number of tokens of captions, including start and end, at most 77."""
    from darkroom.models.clip.network import tokens_of  # loads torch

    rows = tokens_of(captions, _LONGEST, truncate=True)
    return int(np.percentile((rows != 0).sum(axis=1), 99))


def _sampled(subject: Subject, count: int) -> tuple[int, list[Entry]]:
    """Return the number of images of a source, and some of them in random order, so the first are a fair sample."""
    source, part = subject.source, subject.part
    if isinstance(source, Webdataset):
        return _of_shards(source, count)
    if isinstance(source, Hub):
        return _of_hub(source, count)
    stop = part.stop if part.stop is not None else source.size()
    if stop is None:
        raise DarkroomError(f"the source does not report its number of images: set `parts.{subject.name}.stop`.")
    rows = drawn(stop - part.start, count)
    chosen = set(rows)
    entries = {row: entry for row, entry in enumerate(_marked(source.entries(part.start, stop))) if row in chosen}
    return stop - part.start, [entries[row] for row in rows if row in entries]


def _marked(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield entries; `ingest` stores the first one of each key, so the others cannot be read."""
    keys = set[str]()
    for entry in entries:
        yield replace(entry, payload=Finding(Reason.KEY_TWICE)) if entry.key in keys else entry
        if not isinstance(entry.payload, Finding):
            keys.add(entry.key)


def _of_shards(source: Webdataset, count: int) -> tuple[int, list[Entry]]:
    """Return images of random tars, and the estimated number in all tars."""
    shards = len(source.tars.names)
    chosen = drawn(shards, _SHARDS)
    entries = list(_marked(entry for shard in chosen for entry in source.entries(shard, shard + 1)))
    return round(len(entries) * shards / len(chosen)), [entries[row] for row in drawn(len(entries), count)]


def _of_hub(source: Hub, count: int) -> tuple[int, list[Entry]]:
    """Return the first images of a streamed split, and its number of images by its metadata."""
    entries = list(islice(source.entries(0, None), count + 1))
    if len(entries) <= count:
        return len(entries), [entries[row] for row in drawn(len(entries))]
    return max(len(entries), _rows(source)), [entries[row] for row in drawn(count)]


def _rows(source: Hub) -> int:
    """Return the number of rows of a split by its metadata; if missing, read all rows."""
    import datasets

    facts, known = source.metadata(), None
    if target := facts.get("dataset"):
        info = datasets.load_dataset_builder(target, facts["configuration"], revision=facts["revision"]).info
        known = (info.splits or {}).get(facts["split"])
    return int(known.num_examples) if known and known.num_examples else sum(1 for _ in source.entries(0, None))
