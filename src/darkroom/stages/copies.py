"""Find copies of training images among generated ones: write `samples/nearest/NAME/` and additional scores.

`real.png` and `neighbours.png` there show real images next to generated ones. Both have one class per column, like
the grid of samples; with fewer than two classes, the same number of images per row. Images of stored captions are
shown with the images of these captions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from darkroom.artifacts.atomic import atomic_folder, write_bytes
from darkroom.artifacts.manifest import file_hashes, manifest_hash, write_manifest
from darkroom.data.catalog import load_catalog
from darkroom.data.catalog_writer import shown_rows
from darkroom.data.draw import drawn
from darkroom.data.grid import blank, contact_sheet, save_png
from darkroom.data.reader import ImageShards
from darkroom.metrics.batches import batched
from darkroom.metrics.matching import FREQUENCY, alike_rows, class_numbers
from darkroom.metrics.measure import Measurement, Samples
from darkroom.metrics.memorisation import Near, Panel, memorisation
from darkroom.metrics.sample_scores import MEMORISATION, SPACES
from darkroom.models.generators.kind_settings import TEXTS
from darkroom.models.generators.sample_settings import ScoreGenerator
from darkroom.stages.empty import NEAREST
from darkroom.stages.generated import CAPTIONED, save_captioned
from darkroom.terminal.terminal import with_progress

TRAIN = "train"
_PAIRS = 8  # closest pairs in each picture
_COLUMNS = ("set", "key", *(f"{space}_{column}" for space in SPACES for column in ("d1", "d2", "nearest")))


@dataclass(frozen=True)
class Copies:
    """Search the training images for the samples in `folder`, and write the closest pairs.

    folder: the samples' folder.
    manifest: the samples' manifest.
    settings: settings of the scoring stage.
    held_out: the split of unseen real images.
    left_out: the rows of this split that `reference_stats` left out.
    """

    folder: Path
    manifest: Mapping[str, Any]
    settings: ScoreGenerator
    held_out: str
    left_out: Sequence[int]
    scores, needs = MEMORISATION, ("classifier",)

    def measure(self, samples: Samples, reference: object) -> Measurement:
        """Write `samples/nearest/NAME/` and return the scores of `MEMORISATION`; none if `copies.images` is 0."""
        generated, classes = ImageShards.open_folder(self.folder, "samples"), load_catalog().classes
        train, columns = self._split(TRAIN), columns_of(generated.labels, classes)
        with atomic_folder(NEAREST / self.folder.name) as out:
            facts: dict[str, Any] = {"images": 0, "reason": "`copies.images` is 0"}
            measurement, split = Measurement(), None
            if self.manifest.get("condition") in TEXTS:
                split = self.manifest["sampler"].get("split")
            if self.settings.copies.images:
                sets = {"generated": generated, self.held_out: self._split(self.held_out)}
                sets[self.held_out].leave_out(self.left_out)
                panel = self._panel(samples, sets, train, classes)
                facts, measurement = self._write_pairs(out, panel, sets, train, columns)
            if split and draw_originals(out / REAL, generated, self._split(split)):
                facts["originals"] = split
            else:
                draw_real(out / REAL, train, columns)
            facts |= {"samples": manifest_hash(self.folder), "columns": columns}
            write_manifest(out, "nearest", **facts, files=file_hashes(out))
        return measurement

    def _split(self, name: str) -> ImageShards:
        return ImageShards.open_parts(list(load_catalog().parts), name)

    @property
    def _of_held_out(self) -> bool:
        """Whether the samples were made from held-out images: they are then close to these, so gaps mean nothing."""
        return self.manifest.get("condition", "class") not in ("class", "none") or "split" in self.manifest

    def _panel(
        self, samples: Samples, sets: Mapping[str, ImageShards], train: ImageShards, classes: Sequence[str]
    ) -> Panel:
        batch, device = self.settings.batch, samples.device or torch.device("cpu")
        generated, unseen = sets.values()
        network = samples.classifier.to(device).eval()

        def features(images: Tensor) -> Tensor:
            return torch.cat(list(batched(network.features, [images], batch, device)))

        def alike(images: ImageShards, others: ImageShards, rows: Sequence[int]) -> list[int]:
            """Return drawn rows of real images with the classes of others; of any class if too few have them."""
            numbers = class_numbers([others.labels[row] for row in rows], classes)
            distribution = self.manifest.get("distribution", FREQUENCY)
            chosen, _ = alike_rows(class_numbers(images.labels, classes), numbers, distribution)
            return chosen if len(chosen) > 1 else drawn(len(images), len(numbers))

        rows = drawn(len(generated), self.settings.copies.images)
        held_out = alike(unseen, generated, rows)
        return memorisation(
            (generated, rows),
            (unseen, held_out),
            train,
            alike(train, unseen, held_out),
            features,
            batch=batch,
            blocks=self.settings.blocks,
            with_gaps=not self._of_held_out,
            device=device,
            progress=lambda batches: with_progress(batches, len(train), "training images"),
        )

    def _write_pairs(
        self, out: Path, panel: Panel, shards: Mapping[str, ImageShards], train: ImageShards, columns: list[str]
    ) -> tuple[dict[str, Any], Measurement]:
        """Write the distances and the pictures of the closest pairs; return facts for the manifest, and scores."""
        scores = dict(panel.scores)
        if self.manifest.get("images_seen"):
            scores["times_seen"] = self.manifest["images_seen"] / len(train)
        near = (panel.samples, panel.held_out)
        sets = {name: (images, of) for (name, images), of in zip(shards.items(), near, strict=True)}
        write_bytes(out / "distances.tsv", _table(sets, train).encode())
        for space in SPACES:
            _draw(out / f"{space}.png", space, sets, train)
        n, n_held_out = (len(of.rows) for of in near)
        facts = {
            "neighbours": draw_neighbours(out / NEIGHBOURS, shards["generated"], panel.samples, train, columns),
            "images": n,
            "held_out": {"split": self.held_out, "images": n_held_out},
            "train": len(train),
            "scores": scores,
            "floor": panel.floor,
            "nearer": panel.nearer,
        }
        fractions = ", ".join(f"{panel.scores[f'copies_{space}']:.1%} in {space}" for space in SPACES)
        floor = ", ".join(f"{panel.floor[f'copies_{space}']:.1%}" for space in SPACES)
        print(f"copies of training images: {fractions}; of held-out images: {floor}")
        counts = {"n": n, "n_held_out": n_held_out, "n_train": len(train)}
        return facts, Measurement(scores, {"copies": counts}, baselines={"copies": panel.floor})


def _table(sets: Mapping[str, tuple[ImageShards, Near]], train: ImageShards) -> str:
    """Return the distances of all compared images, one line each, sorted by key."""
    lines = ["\t".join(_COLUMNS)]
    for name, (images, near) in sets.items():
        cells = [[name] * len(near.rows), images.keys_of(near.rows)]
        for space in SPACES:
            of = near.neighbours[space]
            cells += [[f"{value:.6g}" for value in values.tolist()] for values in (of.nearest, of.second)]
            cells.append(train.keys_of(of.row.tolist()))
        lines += sorted("\t".join(row) for row in zip(*cells, strict=True))
    return "".join(f"{line}\n" for line in lines)


def _draw(path: Path, space: str, sets: Mapping[str, tuple[ImageShards, Near]], train: ImageShards) -> None:
    """Draw the closest pairs: rows of generated images and their nearest training images, then of held-out images."""
    count = min(_PAIRS, *(len(near.rows) for _, near in sets.values()))
    rows = []
    for images, near in sets.values():
        places = near.closest(space, count)
        rows.append(images.__getitems__([near.rows[place] for place in places]))
        rows.append(train.__getitems__([int(near.neighbours[space].row[place]) for place in places]))
    save_png(path, contact_sheet(np.concatenate(rows), count))


REAL, NEIGHBOURS = "real.png", "neighbours.png"
_WIDE = 10  # columns, as in the grid of samples
_REAL_ROWS, _MADE_ROWS = 5, 3
_SHOWN = ("features", "pixels")  # spaces in which neighbours are shown


def columns_of(labels: Sequence[str | None], classes: Sequence[str]) -> list[str]:
    """Return the classes of the columns: the first ten, in the order of `classes`, that `labels` holds.

    Images of a single class fill rows instead.
    """
    present = set(labels)
    return [name for name in dict.fromkeys(classes) if name in present][:_WIDE]


def draw_real(path: Path, train: ImageShards, columns: Sequence[str]) -> None:
    """Draw random real images: five of each class in `columns`, or five rows if there are fewer than two classes."""
    rows = shown_rows(train)  # a few shards of remote images are fetched
    labels = np.array(train.labels, dtype=object)[rows]
    if len(columns) > 1:
        chosen = [_taken(rows[labels == name], _REAL_ROWS) for name in columns]
        places = [row for rows_of_columns in zip_longest(*chosen) for row in rows_of_columns]
        width = len(columns)
    else:
        places = list(_taken(rows[labels == columns[0]] if columns else rows, _WIDE * _REAL_ROWS))
        width = min(_WIDE, max(1, len(places)))
    save_png(path, contact_sheet(_images(train, places), width))


def draw_originals(path: Path, generated: ImageShards, images: ImageShards) -> bool:
    """Draw the real images with the captions of the first samples, in the same places; return whether they exist.

    `images` are those of the split that the captions come from.
    """
    captions = [caption or "" for caption in generated.captions[:CAPTIONED]]
    rows = originals(captions, images)
    if rows is None:
        return False
    save_captioned(path, list(images.__getitems__(rows)), captions)
    return True


def originals(captions: Sequence[str], images: ImageShards) -> list[int] | None:
    """Return the row of an image for each caption; images with the same caption take turns.

    None if a caption (or a key, which replaces a missing caption) belongs to no image, or if the images are remote.
    """
    if images.remote:
        return None
    rows: dict[str, list[int]] = {}
    for row, (key, caption) in enumerate(zip(images.keys_of(range(len(images))), images.captions, strict=True)):
        rows.setdefault(caption or key, []).append(row)
    if not rows.keys() >= set(captions):
        return None
    turns = {caption: cycle(of) for caption, of in rows.items()}
    return [next(turns[caption]) for caption in captions]


def _taken(rows: NDArray[np.int64], count: int) -> list[int]:
    return [int(rows[at]) for at in drawn(len(rows), count)]


def draw_neighbours(path: Path, generated: ImageShards, near: Near, train: ImageShards, columns: Sequence[str]) -> int:
    """Draw the first compared samples, and below each its nearest training image in each space.

    Returns:
        the number of rows of generated images, at most three.
    """
    order = sorted(range(len(near.rows)), key=near.rows.__getitem__)  # places in `near.rows`
    if len(columns) > 1:
        labels = generated.labels
        by_class = [[at for at in order if labels[near.rows[at]] == name][:_MADE_ROWS] for name in columns]
    else:
        by_class = [order[column : _WIDE * _MADE_ROWS : _WIDE] for column in range(min(_WIDE, len(order)))]
    sheets = []
    for places in zip_longest(*by_class):
        sheets.append(_images(generated, [None if at is None else near.rows[at] for at in places]))
        for space in _SHOWN:
            neighbours = near.neighbours[space].row
            sheets.append(_images(train, [None if at is None else int(neighbours[at]) for at in places]))
    save_png(path, contact_sheet(np.concatenate(sheets), len(by_class)))
    return len(sheets) // (1 + len(_SHOWN))


def _images(shards: ImageShards, rows: Sequence[int | None]) -> NDArray[np.uint8]:
    """Return the images of rows, uint8 (N, C, H, W); `blank` for missing ones."""
    pixels = blank((len(rows), *shards.image_shape))
    places = [place for place, row in enumerate(rows) if row is not None]
    if places:
        pixels[places] = shards.__getitems__([row for row in rows if row is not None])
    return pixels
