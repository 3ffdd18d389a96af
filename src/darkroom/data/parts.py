"""Writes one part: the samples of a source, checked, prepared, split by key, and sharded."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from darkroom.artifacts.manifest import read_manifest, write_manifest
from darkroom.data.damage import EXCUSED, Action, Finding, Listed, Reason, action_of, require_some, write_quarantine
from darkroom.data.layout import KIND
from darkroom.data.pipeline import Outcome
from darkroom.data.preparing import Preparation
from darkroom.data.shards import KEY, ShardWriter
from darkroom.data.splits import SPLITS, split_of

_DETAIL = 300  # characters of a caption that the list holds


@dataclass(frozen=True)
class Policy:
    """The rules for which samples are stored, and in which split: `ingest.rules` and the keys beside it.

    rules: the action for each reason.
    fractions: the fraction of each split.
    split_seed: the seed of the hash that assigns splits.
    default_label: the label of samples without one; None: no label.
    """

    rules: Mapping[str, str]
    fractions: Mapping[str, float]
    split_seed: int
    default_label: str | None = None


@dataclass
class Sieve:
    """Filters the samples of a part: yields those that may be stored, and lists all with something wrong.

    A quarantined sample is ignored when later keys and contents are compared. The memory is each key, about 60 bytes
    for each identity, and the list.

    seen: the number of samples of the source.
    left_out: the number of samples that are not stored.
    excused: the number of these that are not damaged: see `EXCUSED`.
    listed: the rows of `quarantine.parquet`.
    """

    rules: Mapping[str, str]
    default_label: str | None = None
    seen: int = 0
    left_out: int = 0
    excused: int = 0
    listed: list[Listed] = field(default_factory=list)
    _keys: set[str] = field(default_factory=set)
    _identities: dict[bytes, tuple[str, str | None, int]] = field(default_factory=dict)  # key, label, caption's hash
    _last: Outcome | None = None  # the latest that was yielded: most sources list equal keys one after another

    def passed(self, outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
        """Yield the outcomes that may be stored, in their order."""
        for one in outcomes:
            self.seen += 1
            rows = [
                Listed(one.key, finding.reason, action_of(finding.reason, self.rules), one.where, finding.detail)
                for finding in (*one.findings, *self._again(one))
            ]
            self.listed += rows
            if any(row.action == Action.QUARANTINE for row in rows):
                self.left_out += 1
                self.excused += all(row.reason in EXCUSED for row in rows if row.action == Action.QUARANTINE)
                continue
            self._keys.add(one.key)
            if one.identity is not None:
                label = None if one.label is None else sys.intern(one.label)
                self._identities.setdefault(one.identity, (one.key, label, hash(one.caption)))
            self._last = replace(one, data=None)
            yield one if one.label is not None else replace(one, label=self.default_label)

    def _again(self, one: Outcome) -> Iterator[Finding]:
        if not KEY.fullmatch(one.key):
            yield Finding(Reason.KEY_INVALID, "use 1 to 80 letters, digits, `_` and `-`")
        elif one.key in self._keys and all(found.reason != Reason.KEY_TWICE for found in one.findings):
            last = self._last
            who = last.where if last is not None and last.key == one.key else "an earlier sample"
            yield Finding(Reason.KEY_TWICE, f"the key of {who}")
        if one.identity is not None and (first := self._identities.get(one.identity)) is not None:
            other = "" if first[1] == one.label else f", whose label is {first[1]} and not {one.label}"
            if one.caption is not None and first[2] != hash(one.caption):
                other += f", whose caption is another than {_short(one.caption)!r}"
            yield Finding(Reason.DUPLICATE, f"of {first[0]}{other}")


def _short(text: str) -> str:
    return text if len(text) <= _DETAIL else f"{text[:_DETAIL]}…"


def write_part(
    folder: Path,
    part: str,
    outcomes: Iterable[Outcome],
    source: Mapping[str, Any],
    how: Preparation,
    policy: Policy,
    shard_size: int,
    mirror: bool,
    logs: Path,
) -> dict[str, Any]:
    """Write `folder/{train,val,test}/`, `folder/quarantine.parquet` and `folder/manifest.json`; return the manifest.

    Outcomes are processed one by one, in their order. The key of a sample determines its split. The memory grows with
    the keys alone.

    Args:
        folder: the folder of the part.
        part: the name of the part.
        outcomes: outcomes with the data of each image, from `darkroom.data.pipeline.outcomes`.
        source: the entry `source` of the manifest.
        how: the preparation of the images.
        policy: which samples are stored, and in which split.
        shard_size: the number of images in a shard.
        mirror: whether mirror images are valid training data.
        logs: the folder for the list of damaged samples where no other is left.

    The manifest (kind "shards") holds part, source, image (size, channels, format), preparation, mirror, in_place
    (False), quarantine (see `write_quarantine`), and for each split: images, labels (images of each label), unlabelled,
    shards and index_sha256 (`ShardWriter.close`). An empty split has no shards.

    Raises:
        DarkroomError: no sample can be stored; the message names the reasons and the list.
    """
    writers = {split: _Stored(ShardWriter(folder / split, shard_size, how.spec.format), how) for split in SPLITS}
    metadata = {"source": dict(source), "mirror": mirror, "in_place": False}
    return write_with(writers, folder, part, outcomes, how, policy, metadata, logs)


class Writer(Protocol):
    """Stores the samples of one split of a part."""

    def add(self, one: Outcome) -> None:
        """Store a sample, or its location."""
        ...

    def close(self) -> dict[str, Any]:
        """Finish, and return the entries `shards` and `index_sha256` of the manifest."""
        ...


@dataclass(frozen=True)
class _Stored:
    writer: ShardWriter
    how: Preparation

    def add(self, one: Outcome) -> None:
        assert one.data is not None and one.original_size is not None  # else it has a finding that quarantines it
        size = (self.how.spec.size, self.how.spec.size)
        self.writer.append(one.key, one.data, size, one.original_size, one.label, one.caption)

    def close(self) -> dict[str, Any]:
        return self.writer.close()


def write_with(
    writers: Mapping[str, Writer],
    folder: Path,
    part: str,
    outcomes: Iterable[Outcome],
    how: Preparation,
    policy: Policy,
    metadata: Mapping[str, Any],
    logs: Path,
) -> dict[str, Any]:
    """Pass each valid sample to the writer of its split; write the list of the others and the manifest.

    Args:
        writers: the writer of each split.
        folder: see `write_part`, as for the arguments below.
        part: the name of the part.
        outcomes: the outcomes in the form that the writers accept.
        how: the preparation of the images, now or on reading.
        policy: which samples are used, and in which split.
        metadata: further entries of the manifest.
        logs: the folder for the list of damaged samples where no other is left.

    Raises:
        DarkroomError: as `write_part`.
    """
    labels: dict[str, Counter[str | None]] = {split: Counter() for split in SPLITS}
    sieve = Sieve(policy.rules, policy.default_label)
    for one in sieve.passed(outcomes):
        split = split_of(one.key, policy.fractions, policy.split_seed)
        writers[split].add(one)
        labels[split][one.label] += 1
    splits = {split: {**label_counts(labels[split]), **writers[split].close()} for split in SPLITS}
    require_some(part, sieve.listed, sieve.seen, sieve.left_out, sieve.excused, logs)
    write_manifest(
        folder,
        KIND,
        part=part,
        image=how.spec.metadata(),
        preparation=how.metadata(),
        quarantine=write_quarantine(folder, sieve.listed, sieve.left_out, sieve.excused),
        splits=splits,
        **metadata,
    )
    return read_manifest(folder, KIND)


def label_counts(labels: Counter[str | None]) -> dict[str, Any]:
    """Return the entries `images`, `unlabelled` and `labels` of a split; the label None means an unlabelled image."""
    named = {label: count for label, count in labels.items() if label is not None}
    return {"images": labels.total(), "unlabelled": labels[None], "labels": named}
