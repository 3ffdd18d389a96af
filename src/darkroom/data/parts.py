"""Write one part: check, prepare, split and shard the samples of a source, or index them in place."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from darkroom.artifacts.manifest import read_manifest, sha256_file, write_manifest
from darkroom.data.damage import EXCUSED, Action, Finding, Listed, Reason, action_of, require_some, write_quarantine
from darkroom.data.grouping import assigned
from darkroom.data.index import IMAGES, IndexWriter
from darkroom.data.layout import KIND
from darkroom.data.pipeline import Outcome
from darkroom.data.preparing import Preparation
from darkroom.data.shards import KEY, ShardWriter, index_row
from darkroom.data.splits import SPLITS
from darkroom.data.tar_files import TarFiles
from darkroom.errors import DarkroomError

FORMAT = "original"  # the image format in the manifest of a part that is indexed in place

_DETAIL = 300  # characters of a caption that the list holds


@dataclass(frozen=True)
class Policy:
    """The rules for which samples are stored, and in which split: `ingest.rules` and the other keys of `ingest`."""

    rules: Mapping[str, str]
    fractions: Mapping[str, float]
    split_seed: int
    default_label: str | None = None
    group: str = "key"


@dataclass
class SampleFilter:
    """Filter the samples of a part: yield those to store, and list all damaged ones.

    A quarantined sample is ignored when later keys and contents are compared. The memory is each key, about 60 bytes
    for each identity, and the list.

    samples: the number of samples of the source.
    left_out: the number of samples that are not stored.
    excused: the number of these that are not damaged: see `EXCUSED`.
    listed: the rows of `quarantine.parquet`.
    """

    rules: Mapping[str, str]
    default_label: str | None = None
    samples: int = 0
    left_out: int = 0
    excused: int = 0
    listed: list[Listed] = field(default_factory=list)
    _keys: set[str] = field(default_factory=set)
    _identities: dict[bytes, tuple[str, str | None, int]] = field(default_factory=dict)  # key, label, caption's hash
    _last: Outcome | None = None  # the last one yielded: most sources list equal keys one after another

    def passed(self, outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
        """Yield the outcomes to store, in order."""
        for outcome in outcomes:
            self.samples += 1
            rows = [
                Listed(outcome.key, damage.reason, action_of(damage.reason, self.rules), outcome.where, damage.detail)
                for damage in (*outcome.findings, *self._again(outcome))
            ]
            self.listed += rows
            if any(row.action == Action.QUARANTINE for row in rows):
                self.left_out += 1
                self.excused += all(row.reason in EXCUSED for row in rows if row.action == Action.QUARANTINE)
                continue
            self._keys.add(outcome.key)
            if outcome.identity is not None:
                label = None if outcome.label is None else sys.intern(outcome.label)
                self._identities.setdefault(outcome.identity, (outcome.key, label, hash(outcome.caption)))
            self._last = replace(outcome, data=None)
            yield outcome if outcome.label is not None else replace(outcome, label=self.default_label)

    def _again(self, outcome: Outcome) -> Iterator[Finding]:
        if not KEY.fullmatch(outcome.key):
            yield Finding(Reason.KEY_INVALID, "use 1 to 80 letters, digits, `_` and `-`")
        elif outcome.key in self._keys and all(finding.reason != Reason.KEY_TWICE for finding in outcome.findings):
            last = self._last
            holder = last.where if last is not None and last.key == outcome.key else "an earlier sample"
            yield Finding(Reason.KEY_TWICE, f"the key of {holder}")
        if outcome.identity is not None and (first := self._identities.get(outcome.identity)) is not None:
            difference = "" if first[1] == outcome.label else f", whose label is {first[1]} and not {outcome.label}"
            if outcome.caption is not None and first[2] != hash(outcome.caption):
                difference += f", whose caption is another than {_short(outcome.caption)!r}"
            yield Finding(Reason.DUPLICATE, f"of {first[0]}{difference}")


def _short(text: str) -> str:
    return text if len(text) <= _DETAIL else f"{text[:_DETAIL]}…"


def tars_of(source: Any) -> TarFiles | None:
    """Return the tars of a source that is indexed in place; None if its images are stored."""
    return source.tars if getattr(source, "in_place", False) else None


def write_part(
    folder: Path,
    part: str,
    outcomes: Iterable[Outcome],
    source: Mapping[str, Any],
    preparation: Preparation,
    policy: Policy,
    shard_size: int,
    mirror: bool,
    logs: Path,
    tars: TarFiles | None = None,
) -> dict[str, Any]:
    """Write `folder/{train,val,test}/`, `folder/quarantine.parquet` and `folder/manifest.json`; return the manifest.

    Outcomes are processed one by one, in their order. The key of a sample, or its group, determines its split; see
    `assigned`. The memory grows with the keys alone, or with the descriptors. With `tars` a split is an index into
    these, which are not changed.

    `outcomes` hold the data of each image, from `darkroom.data.pipeline.outcomes`; with `tars` the extent of each
    (`store` False), the images of a tar one after the other. `preparation` is applied now or on reading; `mirror` says
    whether mirror images are valid training data; `logs` gets the list of damaged samples if no sample is stored.

    The manifest (kind "shards") holds part, source, image (size, channels, format: "original" in place), preparation,
    mirror, in_place, quarantine (see `write_quarantine`), groups (if split by group: rule, groups, largest, effective:
    N^2 / sum n^2, and salt), and for each split: images, labels (images of each label),
    unlabelled, shards and index_sha256 (`ShardWriter.close`). An empty split has no shards. In place a shard is an
    original tar, listed in each split that has images of it: name (its number in the source), images, bytes and sha256
    of the tar, and tar: its path or URL, as written in params.yaml. `transparent` counts the images in the source with
    a pixel that is not opaque, if any.

    Raises:
        DarkroomError: no sample can be stored (the message names the reasons and the list), or a tar was removed.
    """
    writers: dict[str, ShardWriter | _Pointers]
    if tars is None:
        writers = {split: ShardWriter(folder / split, shard_size, preparation.spec.format) for split in SPLITS}
    else:
        preparation = replace(preparation, spec=replace(preparation.spec, format=FORMAT))
        entry = cache(partial(_tar_entry, tars))  # each tar is read once, although it may belong to three splits
        writers = {split: _Pointers(folder / split, entry) for split in SPLITS}
    size = preparation.spec.size, preparation.spec.size
    labels: dict[str, Counter[str | None]] = {split: Counter() for split in SPLITS}
    transparent = 0
    sieve = SampleFilter(policy.rules, policy.default_label)
    try:
        passed = sieve.passed(outcomes)
        stored, groups = assigned(passed, part, policy.group, policy.fractions, policy.split_seed, folder)
        for outcome, split, group in stored:
            labels[split][outcome.label] += 1
            transparent += outcome.transparent
            assert outcome.original_size is not None  # else it has a finding that quarantines it
            row = index_row(outcome.key, size, outcome.original_size, outcome.label, outcome.caption)
            row |= {} if group is None else {"group": group}
            if isinstance(writer := writers[split], _Pointers):
                writer.add(row, outcome)
            else:
                assert outcome.data is not None
                writer.append(row, outcome.data)
        splits = {
            split: {
                "images": counts.total(),
                "unlabelled": counts[None],
                "labels": {label: count for label, count in counts.items() if label is not None},
                **writers[split].close(),
            }
            for split, counts in labels.items()
        }
    except FileNotFoundError as error:
        if tars is None:
            raise
        raise DarkroomError(f"{error.filename} was removed after it was read: restore it.") from error
    require_some(part, sieve.listed, sieve.samples, sieve.left_out, logs)
    write_manifest(
        folder,
        KIND,
        part=part,
        image=preparation.spec.metadata(),
        preparation=preparation.metadata(),
        quarantine=write_quarantine(folder, sieve.listed, sieve.left_out, sieve.excused),
        splits=splits,
        source=dict(source),
        mirror=mirror,
        in_place=tars is not None,
        **({"transparent": transparent} if transparent else {}),
        **groups,
    )
    return read_manifest(folder, KIND)


def _tar_entry(tars: TarFiles, number: int) -> dict[str, Any]:
    """Return the entry of a tar in the manifest."""
    path = tars(number)
    return {"bytes": path.stat().st_size, "sha256": sha256_file(path), "tar": tars.names[number]}


class _Pointers:
    """The index of one split: a row group for each tar that has images in it."""

    def __init__(self, folder: Path, entry: Callable[[int], dict[str, Any]]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._index, self._entry = IndexWriter(folder, IMAGES), entry
        self._number = -1
        self._rows: list[dict[str, Any]] = []
        self._entries: list[dict[str, Any]] = []

    def add(self, row: Mapping[str, Any], outcome: Outcome) -> None:
        """Add the location of an image; the images of a tar come one after the other."""
        assert outcome.extent is not None
        tar, offset, size = outcome.extent
        if tar != self._number:
            self._finish()
            self._number = tar
        self._rows.append({**row, "offset": offset, "size": size, "sha256": outcome.sha256})

    def close(self) -> dict[str, Any]:
        self._finish()
        return {"shards": self._entries, "index_sha256": self._index.close()}

    def _finish(self) -> None:
        if self._rows:
            self._index.add(self._rows)
            name = f"{self._number:05d}"
            self._entries.append({"name": name, "images": len(self._rows), **self._entry(self._number)})
            self._rows = []
