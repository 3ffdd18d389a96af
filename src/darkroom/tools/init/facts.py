"""What is in a source of images, by a sample of it: sizes, colours, classes, captions, duplicates."""

import hashlib
import math
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from PIL import Image

from darkroom.data.damage import EXCUSED, DamageError, Finding, Reason
from darkroom.data.decoding import CONVERT, open_image
from darkroom.data.preparing import eight_bits, upright_size
from darkroom.data.sample import Entry, Raw
from darkroom.errors import DarkroomError
from darkroom.terminal.terminal import each_with_progress
from darkroom.tools.init.sampling import sampled
from darkroom.tools.init.subject import Subject

LOOKED = 2000  # samples that are read, where they are read in time
FEWEST = 40  # images with which the whole DAG ends
_SECONDS = 12.0  # of reading, after which no more are read,
_ENOUGH = 100  # but for so many
_LONGEST = 77  # tokens of a caption that CLIP can read, start and end included
_LARGEST = 100_000_000  # pixels of an image that is still opened
_OWN = 0.05  # different captions for each image that has one, above which captions say more than classes
_GREY = 4  # largest difference of two channels, of 255, that still is grey


@dataclass(frozen=True)
class Facts:
    """What a sample of a source shows; fractions are of the images that could be read.

    images: that differ, as `ingest` leaves copies out; what cannot be read is not counted.
    looked: samples that were tried; `ingest` leaves left_out of them out: damaged, wholly transparent, of one pixel, or
        of a key that another has. Those that could not be downloaded are not counted.
    side: 5 %, 50 % and 95 % of the shorter side, pixels.
    aspect: 50 % and 95 % of longer / shorter side.
    grey, transparent, plain: fraction of images without colour, with transparent pixels, of one colour.
    duplicates: fraction of the source's images that are copies of another, by an estimate where not all were looked at.
    classes: images by class among those read, most frequent first; empty where there are none.
    unlabelled: fraction without a class, where there are classes.
    captioned: fraction with a caption.
    captions: different captions for each image that has one, in the source, by an estimate as well.
    tokens: 99 % of the captions have at most as many tokens, as CLIP counts them; None where there are none.
    found: images in the source, with copies and damaged ones.
    seconds: of reading an image.
    keys: what `ingest` stores of the samples, by key, and whether each has a caption; of those not read it is assumed.
    convert: formats of pictures that are not read, and how many samples are of each.
    """

    images: int
    looked: int
    left_out: int
    side: tuple[int, int, int]
    aspect: tuple[float, float]
    grey: float
    transparent: float
    plain: float
    duplicates: float
    classes: dict[str, int]
    unlabelled: float
    captioned: float
    captions: float
    tokens: int | None
    found: int
    seconds: float
    convert: dict[str, int]
    keys: Mapping[str, bool] = field(default_factory=dict)

    @property
    def scale(self) -> float:
        """Images of the source for each that was read."""
        return self.found / max(1, self.looked)

    @property
    def most_left_out(self) -> float:
        """What `catalog.max_quarantined` bounds: the fraction left out of the images that are no copies.

        Two standard errors above that of the sample, where not all were looked at.
        """
        count: float = self.left_out
        if count and self.looked < self.found:
            count += 1 + 2 * math.sqrt(count + 1)
        return count * self.scale / (count * self.scale + self.images)

    @property
    def long(self) -> bool:
        """Whether more than one caption of a hundred is longer than CLIP can read."""
        return self.tokens == _LONGEST

    @property
    def has_captions(self) -> bool:
        """Whether most images have a caption, and captions say more than classes, if there are any."""
        return self.may_have_texts and (len(self.classes) < 2 or self.captions > _OWN)

    @property
    def may_have_texts(self) -> bool:
        """Whether most images have a caption, and not all the same one."""
        return self.captioned > 0.5 and self.tokens is not None


class _Seen(NamedTuple):
    """What is known of one image; aspect: longer / shorter side."""

    side: int
    aspect: float
    grey: bool
    transparent: bool
    plain: bool
    digest: bytes
    may_be_copy: bool
    label: str | None
    caption: str | None


def look(subject: Subject) -> Facts:
    """Return what a sample of a source shows, read in a drawn order for some seconds at most.

    Raises:
        DarkroomError: the source cannot say how many images it has, or none of those that were tried can be read, or
            they are too few.
    """
    total, entries = sampled(subject, LOOKED)
    if total < FEWEST:
        raise DarkroomError(
            f"{total:,} image{' is' if total == 1 else 's are'} too few: scores are of held-out images, so {FEWEST} "
            "are needed, and some hundred give something to look at. Add images."
        )
    seen: dict[str, _Seen | None] = {}
    wrong, convert = Counter[str](), Counter[str]()
    looked = excused = 0
    start = time.monotonic()
    for entry in each_with_progress(entries, len(entries), "looking"):
        if looked >= _ENOUGH and time.monotonic() > start + _SECONDS:
            break
        looked += 1
        try:
            if isinstance(entry.payload, Finding):
                raise DamageError(entry.payload.reason)
            seen[entry.where] = _seen(subject.source.read(entry))
        except DamageError as error:
            seen[entry.where] = None
            wrong[error.reason] += 1
            if error.detail.endswith(CONVERT):
                convert[error.detail.partition(":")[0]] += 1
            excused += error.reason in EXCUSED
    usable = [one for one in seen.values() if one is not None]
    if not usable:
        said = ", ".join(f"{reason} {count:,}" for reason, count in wrong.most_common())
        what = f"{convert.most_common(1)[0][0]} is {CONVERT}." if convert else "is it the right source?"
        raise DarkroomError(f"none of {looked:,} images that were tried can be read ({said}): {what}")
    facts = _facts(total, looked, usable, convert, excused, (time.monotonic() - start) / looked)
    if facts.images < FEWEST:
        raise DarkroomError(
            f"of {total:,} images about {facts.images} differ and can be read, which are too few: {FEWEST} are needed, "
            "and copies are left out. Add images."
        )
    return replace(facts, keys=_keys(entries, seen))


def _keys(entries: Sequence[Entry], seen: Mapping[str, _Seen | None]) -> dict[str, bool]:
    """Return the keys of the entries that `ingest` stores, of copies the first, and whether each has a caption.

    `seen` is by `Entry.where`; None: it cannot be used.
    """
    found, digests = dict[str, bool](), set[bytes]()
    for entry in sorted(entries, key=lambda entry: entry.where):
        if entry.where not in seen:
            found.setdefault(entry.key, True)
        elif (one := seen[entry.where]) and not (one.may_be_copy and one.digest in digests):
            digests.add(one.digest)
            found.setdefault(entry.key, bool(one.caption))
    return found


def _seen(raw: Raw) -> _Seen:
    """Return what is known of one image. Raises DamageError."""
    image = raw.image if isinstance(raw.image, Image.Image) else open_image(raw.image, _LARGEST)
    if not min(image.size):
        raise DamageError(Reason.ZERO_SIZE)
    if image.size == (1, 1):
        raise DamageError(Reason.ONE_PIXEL)
    data = raw.image if isinstance(raw.image, bytes) else image.tobytes()
    digest = hashlib.sha256(data).digest()
    return _Seen(*_pixels(image), digest, raw.identity is not None, raw.label, raw.caption)


def _pixels(image: Image.Image) -> tuple[int, float, bool, bool, bool]:
    """Return shorter side, longer / shorter, and whether it is grey, transparent in places, and of one colour."""
    width, height = upright_size(image)
    plain_mode = eight_bits(image)
    small = plain_mode.reduce(max(1, min(image.size) // 64)).convert("RGBA")
    pixels = np.asarray(small).reshape(-1, 4).astype(int)
    if not pixels[:, 3].any():
        raise DamageError(Reason.TRANSPARENT)
    solid = pixels[pixels[:, 3] > 127][:, :3]
    grey = bool(len(solid)) and float(np.ptp(solid, axis=1).mean()) <= _GREY
    opacity = pixels[:, 3:] / 255
    on_white = pixels[:, :3] * opacity + 255 * (1 - opacity)  # as `ingest` stores it
    plain = len(pixels) == 1 or bool((np.ptp(on_white, axis=0) <= 1).all())
    return min(width, height), max(width, height) / min(width, height), grey, bool((pixels[:, 3] < 250).any()), plain


def _facts(
    found: int, looked: int, seen: Sequence[_Seen], convert: Mapping[str, int], excused: int, seconds: float
) -> Facts:
    count = len(seen)
    images = round(found * count / looked)  # that can be read
    low, middle, high = np.percentile([each.side for each in seen], [5, 50, 95]).astype(int).tolist()
    middle_aspect, most_aspect = np.percentile([each.aspect for each in seen], [50, 95]).tolist()
    labels = Counter(each.label for each in seen if each.label is not None)
    captions = Counter(each.caption for each in seen if each.caption)
    captioned = sum(captions.values()) / count
    copies = all(each.may_be_copy for each in seen)
    different = _different(images, Counter(each.digest for each in seen).values())
    return Facts(
        images=different if copies else found,
        looked=looked,
        left_out=looked - count - excused,
        side=(low, middle, high),
        aspect=(middle_aspect, most_aspect),
        grey=sum(each.grey for each in seen) / count,
        transparent=sum(each.transparent for each in seen) / count,
        plain=sum(each.plain for each in seen) / count,
        duplicates=1 - different / images,
        classes=dict(labels.most_common()),
        unlabelled=1 - sum(labels.values()) / count if labels else 0.0,
        captioned=captioned,
        captions=_different(with_one, captions.values()) / with_one if (with_one := round(images * captioned)) else 0.0,
        tokens=_tokens(list(captions)) if len(captions) > 1 else None,
        found=found,
        seconds=seconds,
        convert=dict(convert),
    )


def _different(images: int, times: Collection[int]) -> int:
    """Return about how many of a source's images, or captions, differ, by how often each was seen in a sample of it.

    M = d + f1² / (2 f2 n / (n - 1) + f1 q / (1 - q)), with d different ones in a sample of n, a fraction q of all, f1
    of which were seen once, and f2 twice (Chao and Lin, 2012).
    """
    often = Counter(times)
    looked, once, twice = sum(times), often[1], often[2]
    if looked >= images or not once:
        return len(times)
    unseen = once**2 / (2 * twice * looked / max(1, looked - 1) + once * looked / (images - looked))
    return min(images, round(len(times) + unseen))


def _tokens(captions: Sequence[str]) -> int:
    """Return how many tokens 99 % of the captions have at most, start and end included; 77 stands for any more."""
    from darkroom.models.clip.network import tokens_of  # loads torch

    rows = tokens_of(captions, _LONGEST, truncate=True)
    return int(np.percentile((rows != 0).sum(axis=1), 99))
