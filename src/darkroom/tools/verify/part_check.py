"""Checks the image shards of a part: manifest, indexes, tars, their statistics, and quarantine.parquet."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from darkroom.artifacts.atomic import json_bytes
from darkroom.artifacts.manifest import NAME, ArtifactError, check_file
from darkroom.data.damage import Action
from darkroom.data.images import EXTENSION
from darkroom.data.index import IMAGES
from darkroom.data.index import NAME as INDEX
from darkroom.data.layout import KIND
from darkroom.data.quarantine import NAME as QUARANTINE
from darkroom.data.quarantine import SCHEMA
from darkroom.data.splits import SPLITS
from darkroom.params.ingest import Ingest
from darkroom.remote import is_remote
from darkroom.tools.verify.indexes import check_keys, check_rows, read_index, slices
from darkroom.tools.verify.manifests import Part, Quarantine, Tar, sealed
from darkroom.tools.verify.problems import Problem, remake, unreliable
from darkroom.tools.verify.tar_check import Checked, Job, check_tar

_WORKERS = 8  # maximum number of tars that are read at once; hashing releases the interpreter lock


@dataclass
class Result:
    """The result of the check of a part.

    indexes: the rows of each split with a valid index.
    skipped: the number of remote tars that were not read.
    manifest: the manifest; None where it is damaged.
    """

    faults: list[Problem] = field(default_factory=list)
    images: int = 0
    shards: int = 0
    bytes: int = 0
    skipped: int = 0
    indexes: dict[str, pa.Table] = field(default_factory=dict)
    manifest: Part | None = None


Progress = Callable[[Iterable[Checked], int], Iterable[Checked]]


def check_part(
    folder: Path,
    name: str,
    ingest: Ingest,
    processors: int,
    also_remote: bool,
    progress: Progress = lambda items, _: items,
) -> Result:
    """Check every byte of a part.

    Args:
        folder: data/shards/PART.
        name: the name of the part.
        ingest: the section `ingest`, for the splits.
        processors: the number of threads that read tars.
        also_remote: whether to read remote tars.
        progress: wraps the iterator over checked tars, with the total number of images, to report progress.
    """
    result = Result()
    again = f"delete {folder} and make it again with `dvc repro ingest@{name}`"
    try:
        _, part = sealed(folder, KIND, Part)
    except ArtifactError as error:
        remedy = f"the rest of the part cannot be checked without it; {again}"
        result.faults.append(unreliable(folder, error, remedy))
        return result
    result.manifest = part
    if part.part != name:
        result.faults.append(Problem(folder / NAME, "is of another part", again, detail=part.part))
    damaged = remake(folder, f"ingest@{name}")
    result.faults += _quarantine(folder / QUARANTINE, part.quarantine, damaged)
    result.bytes += sum(path.stat().st_size for path in folder.rglob("*") if path.suffix != ".tar" and path.is_file())
    tables: dict[Path, tuple[str, pa.Table]] = {}
    jobs: dict[str, Job] = {}
    for split in SPLITS:
        metadata = getattr(part.splits, split)
        images = [entry.images for entry in metadata.shards]
        result.images += sum(images)
        table = read_index(folder / split, IMAGES, images, metadata.index_sha256, damaged)
        if isinstance(table, Problem):
            result.faults.append(table)
            rows: Iterable[pa.Table | None] = [None] * len(images)
        else:
            result.indexes[split], tables[folder / split / INDEX] = table, (split, table)
            result.faults += check_rows(folder / split / INDEX, table, metadata, part, again)
            rows = slices(table, images)
        for entry, some in zip(metadata.shards, rows, strict=True):
            if not part.in_place:
                result.faults += _statistics(folder / split / f"{entry.name}_stats.json", entry, damaged)
            _add(jobs, _job(folder / split, entry, some, part, damaged))
    result.faults += check_keys(tables, ingest.splits.model_dump(), ingest.split_seed, again)
    result.shards = len(jobs)
    wanted = [job for job in jobs.values() if also_remote or not is_remote(job.place)]
    result.skipped = len(jobs) - len(wanted)
    with ThreadPoolExecutor(max(1, min(_WORKERS, processors))) as pool:
        for checked in progress(pool.map(check_tar, wanted), result.images):
            result.faults += checked.faults
            result.bytes += checked.bytes
    return result


def _job(folder: Path, entry: Tar, rows: pa.Table | None, part: Part, damaged: str) -> Job:
    if not part.in_place:
        place = str(folder / f"{entry.name}.tar")
        return Job(place, entry.bytes, entry.sha256, rows, EXTENSION.get(part.image.format, "?"), damaged)
    remedy = (
        f"it changed since it was indexed; put the old file back, or index it again with `dvc repro ingest@{part.part}`"
    )
    return Job(str(entry.tar), entry.bytes, entry.sha256, rows, None, remedy)


def _add(jobs: dict[str, Job], job: Job) -> None:
    """Add a tar to the jobs; a tar with images of several splits is read once."""
    known = jobs.get(job.place)
    if known is None:
        jobs[job.place] = job
        return
    tables = [rows for rows in (known.rows, job.rows) if rows is not None]
    rows = pa.concat_tables(tables) if tables else None
    jobs[job.place] = replace(job, rows=rows)


def _statistics(path: Path, entry: Tar, remedy: str) -> Iterator[Problem]:
    wanted = json_bytes({"images": entry.images, "bytes": entry.bytes, "sha256": entry.sha256})
    if not path.is_file():
        yield Problem(path, "is missing", remedy)
    elif path.read_bytes() != wanted:
        yield Problem(path, "says something else than the manifest", remedy)


def _quarantine(path: Path, metadata: Quarantine, remedy: str) -> Iterator[Problem]:
    try:
        check_file(path, metadata.sha256)
    except ArtifactError:
        what = "is damaged: its sha256 is not that of the manifest" if path.is_file() else "is missing"
        yield Problem(path, what, remedy)
        return
    if not pq.read_schema(path).equals(SCHEMA):
        yield Problem(path, "has other columns than a list of this version", remedy)
        return
    table = pq.read_table(path, columns=["action", "reason"])
    found: dict[str, dict[str, int]] = {action.value: {} for action in Action}
    for row in table.group_by(["action", "reason"]).aggregate([([], "count_all")]).to_pylist():
        found.setdefault(row["action"], {})[row["reason"]] = row["count_all"]
    if found != {action.value: getattr(metadata, action.value) for action in Action} or table.num_rows != metadata.rows:
        yield Problem(path, "has other counts than the manifest", remedy)
