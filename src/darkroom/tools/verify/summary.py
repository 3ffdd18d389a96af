"""The summary of `darkroom data show`, computed from columns of the indexes alone."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from darkroom.artifacts.manifest import NAME, read_manifest
from darkroom.data.catalog import class_warnings
from darkroom.data.catalog_writer import find_duplicates, find_shared_keys, natural_order
from darkroom.data.damage import QUARANTINE as LIST
from darkroom.data.damage import SCHEMA, Action, read_quarantine
from darkroom.data.embedding_file import KIND as EMBEDDINGS_KIND
from darkroom.data.embeddings import EMBEDDING_PARTS
from darkroom.data.grid import evenly_spaced
from darkroom.data.index import IMAGES, Index
from darkroom.data.latent_file import KIND as LATENTS_KIND
from darkroom.data.latents import LATENT_PARTS
from darkroom.data.layout import KIND, SHARDS
from darkroom.data.sources.walk import passed_over
from darkroom.data.splits import SPLITS

_EXAMPLES = 5  # number of captions shown
_FIRST = 3  # number of samples shown for each reason


def summary(
    parts: Sequence[str],
    splits: Sequence[str],
    every_row: bool = False,
    root: Path = SHARDS,
    latents: Path = LATENT_PARTS,
    embeddings: Path = EMBEDDING_PARTS,
) -> dict[str, Any]:
    """Return a summary of some parts, as JSON values.

    Args:
        parts: the names of the parts.
        splits: the splits of the images; quarantined samples have no split, and are listed for the whole part.
        every_row: whether to list every row of quarantine.parquet, not only the first rows of each reason.
        root: data/shards.
        latents: data/latents.
        embeddings: data/embeddings.

    Returns:
        parts (name, source, images of each split, shards, bytes, in_place, mirror, quarantine, passed_over), images,
        classes, class_warnings (of all splits), sizes, captions, quarantine, latents (for each part that has any: form,
        shape, dtype, codes), embeddings (for each part that has any: names, dim, encoding_shape, dtype, normalised,
        splits), and duplicates and shared_keys over all splits.

    Raises:
        ArtifactError: a part is missing or damaged; the message names the file.
    """
    manifests = {part: read_manifest(root / part, KIND) for part in parts}
    folders = {
        root / part / split: manifest["splits"][split] for part, manifest in manifests.items() for split in splits
    }
    index = Index(folders, IMAGES)
    sizes = [
        np.full(sum(manifest["splits"][split]["images"] for split in splits), manifest["image"]["size"], np.int64)
        for manifest in manifests.values()
    ]
    return {
        "splits": list(splits),
        "parts": [_part(name, manifest, splits) for name, manifest in manifests.items()],
        "images": len(index.column("label")),
        "classes": _classes(index.column("label")),
        "class_warnings": class_warnings(_by_split(manifests)),
        "sizes": _sizes(index, np.concatenate(sizes)),
        "captions": _captions(index),
        "quarantine": _quarantine(manifests, root, every_row),
        "latents": _latents(parts, latents),
        "embeddings": _embeddings(parts, embeddings),
        "duplicates": find_duplicates(manifests, root),
        "shared_keys": find_shared_keys(manifests, root),
    }


def _part(name: str, manifest: Mapping[str, Any], splits: Sequence[str]) -> dict[str, Any]:
    chosen = {split: manifest["splits"][split] for split in splits}
    tars = {
        (entry.get("tar", split), entry["name"]): entry
        for split, metadata in chosen.items()
        for entry in metadata["shards"]
    }
    return {
        "name": name,
        "source": manifest["source"].get("name", "?"),
        "images": {split: metadata["images"] for split, metadata in chosen.items()},
        "shards": len(tars),
        "bytes": sum(entry["bytes"] for entry in tars.values()),
        "image": manifest["image"],
        "in_place": manifest["in_place"],
        "mirror": manifest["mirror"],
        "quarantine": {action.value: manifest["quarantine"][action.value] for action in Action},
        "passed_over": passed_over(manifest["source"]),
    }


def _latents(names: Sequence[str], root: Path) -> list[dict[str, Any]]:
    """Return the format of the latents of each part that has any."""
    found = []
    for name in names:
        if (root / name / NAME).is_file():
            manifest = read_manifest(root / name, LATENTS_KIND)
            codebook = manifest.get("codebook")
            metadata = {"form": "distribution", **manifest["latent"], "codes": codebook and codebook["size"]}
            found.append({"part": name, **metadata})
    return found


def _embeddings(names: Sequence[str], root: Path) -> list[dict[str, Any]]:
    """Return the format of the embeddings of each part that has any."""
    found = []
    for name in names:
        there = (root / name / NAME).is_file()
        manifest: dict[str, Any] = read_manifest(root / name, EMBEDDINGS_KIND) if there else {"clip": ""}
        if manifest["clip"]:
            metadata = {key: manifest[key] for key in ("names", "dim", "encoding_shape", "dtype", "normalised")}
            stored = [split for split, each in manifest["splits"].items() if each["stored"]]
            found.append({"part": name, **metadata, "splits": stored})
    return found


def _classes(labels: pa.ChunkedArray) -> dict[str, Any]:
    """Return the image count of each class in descending order; imbalance: the largest over the smallest."""
    pairs = {str(pair["values"]): pair["counts"] for pair in labels.drop_null().value_counts().to_pylist()}
    counts = {name: pairs[name] for name in natural_order(pairs)}
    ranked = dict(sorted(counts.items(), key=lambda pair: -pair[1]))
    most, least = max(counts.values(), default=0), min(counts.values(), default=0)
    return {"unlabelled": labels.null_count, "imbalance": most / least if least else None, "counts": ranked}


def _by_split(manifests: Mapping[str, Mapping[str, Any]]) -> dict[str, Counter[str]]:
    """Return for each split the number of images of each class, over all parts."""
    found = {split: Counter[str]() for split in SPLITS}
    for manifest in manifests.values():
        for split, counts in found.items():
            counts.update(manifest["splits"][split]["labels"])
    return found


def _spread(values: Any) -> list[Any] | None:
    """Return minimum, median and maximum of some numbers; None where there are none."""
    return np.percentile(values, (0, 50, 100), method="lower").tolist() if len(values) else None


def _sizes(index: Index, sizes: Any) -> dict[str, Any]:
    """Return statistics of the originals: the shorter side in pixels, width over height, and enlarged images."""
    width, height = index.numbers("original_width"), index.numbers("original_height")
    shorter = np.minimum(width, height)
    return {
        "shorter_side": _spread(shorter),
        "aspect_ratio": _spread(width / np.maximum(height, 1)),
        "enlarged": int((shorter < sizes).sum()),
    }


def _captions(index: Index) -> dict[str, Any]:
    captions = index.column("caption")
    there = captions.drop_null()
    rows = pc.indices_nonzero(pc.is_valid(captions))
    shown = [rows[place].as_py() for place in evenly_spaced(_EXAMPLES, len(there))]
    return {
        "images": len(there),
        "without": captions.null_count,
        "words": _spread(np.concatenate([np.empty(0, np.int64), *map(_words, there.chunks)])),
        "characters": _spread(pc.utf8_length(there).to_numpy()),
        "examples": [{"key": index.column("key")[row].as_py(), "caption": captions[row].as_py()} for row in shown],
    }


def _words(texts: pa.Array) -> NDArray[np.int64]:
    """Return the number of words of each text, (N,); three times as fast as a regular expression."""
    return np.fromiter((len(text.split()) for text in texts.to_pylist()), np.int64, len(texts))


def _quarantine(manifests: Mapping[str, Mapping[str, Any]], root: Path, every_row: bool) -> list[dict[str, Any]]:
    """Return for each part, action and reason the number of samples, and the first of them, or all."""
    tables = {part: read_quarantine(root / part, manifest) for part, manifest in manifests.items()}
    return [entry for part, table in tables.items() for entry in _listed(part, table, every_row)]


def failed_ingests(parts: Sequence[str], logs: Path, every_row: bool) -> list[dict[str, Any]]:
    """Return the same of parts that `ingest` did not write, from the lists that it left in `logs`."""
    tables = {part: pq.read_table(logs / f"ingest-{part}" / LIST, schema=SCHEMA) for part in parts}
    return [entry for part, table in tables.items() for entry in _listed(part, table, every_row)]


def _listed(part: str, table: pa.Table, every_row: bool) -> Iterator[dict[str, Any]]:
    counts = Counter(zip(table["action"].to_pylist(), table["reason"].to_pylist(), strict=True))
    order = [action.value for action in Action]
    for action, reason in sorted(counts, key=lambda pair: (order.index(pair[0]), pair[1])):
        both = pc.and_(pc.equal(table["action"], action), pc.equal(table["reason"], reason))
        rows = table.filter(both).select(["key", "source", "detail"])
        rows = rows if every_row else rows.slice(0, _FIRST)
        samples = counts[action, reason]
        yield {"part": part, "action": action, "reason": reason, "samples": samples, "first": rows.to_pylist()}
