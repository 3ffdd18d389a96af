"""Run the DAG in miniature: real stages on a small part of the data, in a scratch folder like the clone."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import BaseModel

from darkroom.artifacts.manifest import NAME
from darkroom.check.check import schema
from darkroom.dag.fingerprint.stages import OUT as CODE
from darkroom.data.layout import SHARDS
from darkroom.errors import DarkroomError
from darkroom.params.parts import Part, settings_of
from darkroom.params.section import validate
from darkroom.params.stage import DVC, OUTPUTS, stage_params
from darkroom.params.training import EvaluateGenerator, Training
from darkroom.tools.places import declared

IMAGES = 2000  # images of all parts, up to which the whole data set is used
_PRIVATE = (".git", ".dvc", ".darkroom", ".snakemake", "logs", "build")
_DOWNLOADS = Path(".darkroom/downloads")


@dataclass(frozen=True)
class Miniature:
    """The folder and the amount of data of a miniature run."""

    folder: Path  # the scratch folder
    parts: Mapping[str, tuple[int, int]]  # first image and number of images of each part
    scale: int = 1  # images of the real data set for each image of the small one
    ready: Set[str] = frozenset()  # parts whose shards are used unchanged


@contextmanager
def scratch(ready: Set[str] = frozenset()) -> Iterator[Path]:
    """Yield a folder with links to the files of the clone except outputs and states; it is removed afterwards.

    ready: parts whose shards are used unchanged.
    """
    excluded = {Path(path) for path in declared(OUTPUTS)} - {SHARDS / part for part in ready}
    above = {parent for path in excluded for parent in path.parents}
    here = Path.cwd()

    def mirror(folder: Path) -> None:
        for entry in sorted(here.joinpath(folder).iterdir()):
            path = folder / entry.name
            if path in above:
                (copy / path).mkdir()
                mirror(path)
            elif path not in excluded and str(path) not in _PRIVATE:
                (copy / path).symlink_to(entry)

    with TemporaryDirectory(prefix="darkroom-plan-") as name:
        copy = Path(name)
        mirror(Path())
        # No fingerprints of code: no output is kept.
        lines = (copy / DVC).read_text().splitlines(keepends=True)
        (copy / DVC).unlink()
        (copy / DVC).write_text("".join(line for line in lines if f"- {CODE}/" not in line))
        (copy / "logs").mkdir()
        if (here / _DOWNLOADS).is_dir():
            (copy / _DOWNLOADS).parent.mkdir()
            (copy / _DOWNLOADS).symlink_to(here / _DOWNLOADS)
        yield copy


def ingested(parts: Iterable[str], stale: Set[str]) -> set[str]:
    """Return the parts with existing, up-to-date shards."""
    return {part for part in parts if f"ingest@{part}" not in stale and (SHARDS / part / NAME).is_file()}


def count_images(stale: Set[str]) -> dict[str, tuple[int, int]]:
    """Return the first image and the number of images of each part; of ingested parts, those that were kept.

    Outputs of `stale` stages are not read.

    Raises:
        DarkroomError: a part is outside its source, or the number of images of its source is unknown.
    """
    from darkroom.data.sources import open_source, slice_of  # imports pyarrow

    counts = {}
    for part in stage_params("catalog")["parts"]:
        params: Any = validate(schema("ingest"), stage_params("ingest", part))
        chosen = params.parts[part]
        if ingested([part], stale):
            splits = json.loads((SHARDS / part / NAME).read_text())["splits"]
            counts[part] = chosen.start, sum(split["images"] for split in splits.values())
            continue
        source = open_source(chosen, settings_of(part, chosen, getattr(params, chosen.source)))
        start, stop = slice_of(source, part, chosen.start, chosen.stop)
        if stop is None or getattr(source, "unit", "images") != "images":
            raise DarkroomError(
                f"part `{part}`: the number of images of {chosen.source} is unknown before ingest: run `dvc repro "
                f"ingest@{part}` first."
            )
        counts[part] = start, len(range(start, stop, chosen.every))
    if not counts:
        raise DarkroomError("params.yaml: `parts` is empty: add at least one part.")
    return counts


_STREAMED = ("hub", "webdataset")  # sources that are read from their beginning
FEWEST = 40  # minimum images that a stage makes or reads: a jackknife of 20 blocks needs them


def small(params: Any, parts: Mapping[str, tuple[int, int]], scale: int) -> Any:
    """Return the settings of a stage for one image of `scale`: a fraction of each part and of `images`.

    `images` in the settings of a stage is the number it makes or reads; that of a training is unchanged. Images are
    evenly spaced in their part, since classes or damaged images may be contiguous; of streams, they are the first.
    Damaged images do not stop the stages.
    """
    if scale == 1:
        return params
    return _fewer(params, scale, {part: (start, -(-count // scale)) for part, (start, count) in parts.items()})


def _fewer(value: Any, scale: int, firsts: Mapping[str, tuple[int, int]]) -> Any:
    if isinstance(value, Training):  # few images may have no groups
        return value.model_copy(update={"shuffle": bool(value.shuffle)})
    if isinstance(value, EvaluateGenerator) or not isinstance(value, BaseModel):
        return value
    changed: dict[str, Any] = {}
    for name in type(value).model_fields:
        held = getattr(value, name)
        if name == "images" and isinstance(held, int):
            changed[name] = max(min(held, FEWEST), -(-held // scale))
        elif name == "max_quarantined":
            changed[name] = 1.0
        elif name == "group" and held == "name":
            changed[name] = "auto"  # of few images, a rule may not hold
        elif name == "twins":
            changed[name] = "keep"
        elif name == "parts" and isinstance(held, dict):
            changed[name] = {
                part: _fewer_of(each, scale, *firsts[part]) if isinstance(each, Part) else each
                for part, each in held.items()
            }
        else:
            changed[name] = _fewer(held, scale, firsts)
    return value.model_copy(update=changed)


def _fewer_of(part: Part, scale: int, start: int, count: int) -> Part:
    """Return a part with one image of `scale`: evenly spaced, or the first `count`."""
    if part.source in _STREAMED:
        return part.model_copy(update={"stop": start + part.every * count})
    return part.model_copy(update={"every": part.every * scale})


def enter(folder: Path, download: bool) -> None:
    """Make the scratch folder the working folder of this process, and unset the variables of DVC.

    Without `download`, weights that are not on this machine are an error: a plan does not download them.
    """
    os.chdir(folder)
    for name in ("DVC_ROOT", "DVC_STAGE"):
        os.environ.pop(name, None)
    if not download:
        nobody = "http://127.0.0.1:9"  # a proxy that does not answer
        os.environ |= {"HF_HUB_OFFLINE": "1", "http_proxy": nobody, "https_proxy": nobody}
