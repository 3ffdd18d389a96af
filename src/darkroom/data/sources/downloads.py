"""Downloads images with img2dataset, https://github.com/rom1504/img2dataset, in an environment of its own.

Its output is a folder of shards: `00000.tar` with the images, `00000.parquet` with the status of each address, and
`00000_stats.json`, written last. A shard with stats is not downloaded again, so a killed download continues with the
shards that were incomplete. R. Beaumont, img2dataset, 2021.
"""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from darkroom.data.sources import tether
from darkroom.errors import DarkroomError
from darkroom.params.parts import Urls as Settings

SHARD = 1000  # addresses in a shard; a power of ten, so that img2dataset's key of a sample is the number of its row
_THREADS = 64  # parallel downloads of each process
_QUALITY = {"jpg": 95, "png": 6, "webp": 95}  # of png: the compression level
_LAST_LINES = 5  # lines at the end of the output that an error message shows
# No telemetry: img2dataset reports no run, and does not look for a newer version.
_ENVIRONMENT = {"WANDB_MODE": "disabled", "NO_ALBUMENTATIONS_UPDATE": "1", "TQDM_DISABLE": "1", "PYTHONUNBUFFERED": "1"}
_NOT_OURS = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
# Error messages are reduced to a few categories: they contain addresses, which may contain passwords.
_FAULTS = {
    r"X-Robots-Tag": "the server forbids it by X-Robots-Tag",
    r"timed? ?out": "no answer in time",
    r"certificate|SSL": "no safe connection",
    r"not known|name resolution|nodename|No address associated": "no such host",
    r"IncompleteRead": "cut off",
    r"refused|reset|unreachable|aborted|Remote end|No route": "no connection",
    r"unknown url type|control characters|Invalid IPv6|nonnumeric port|no host|label (empty|too)": "not an address",
    r"Image decoding error": "img2dataset cannot decode it",
}


def error_category(message: str) -> str:
    """Return the category of a download error, which contains no address."""
    if status := re.search(r"HTTP Error (\d{3})", message):
        return f"HTTP {status[1]}"
    return next((words for pattern, words in _FAULTS.items() if re.search(pattern, message)), "another error")


def arguments(table: Path, out: Path, settings: Settings, processes: int) -> list[str]:
    """Return the arguments of img2dataset's command line."""
    values: dict[str, Any] = {
        "url_list": table.absolute(),
        "input_format": "parquet",
        "url_col": "url",
        "output_folder": out.absolute(),
        "output_format": "webdataset",
        "incremental_mode": "incremental",
        "number_sample_per_shard": SHARD,
        "processes_count": processes,
        "thread_count": _THREADS,
        "retries": settings.retries,
        "timeout": settings.timeout,
        "disallowed_header_directives": json.dumps(settings.disallowed),
        "extract_exif": False,
        "compute_hash": "sha256",
        "enable_wandb": False,
        "encode_format": settings.encode_format,
        "encode_quality": _QUALITY[settings.encode_format],
    }
    if settings.resize is None:
        values["disable_all_reencoding"] = True
    else:
        values |= {"image_size": settings.resize, "resize_mode": "keep_ratio", "resize_only_if_bigger": True}
        values["skip_reencode"] = True
    return [word for name, value in values.items() for word in (f"--{name}", str(value))]


def shard(out: Path, number: int) -> Path:
    """Return the path of a shard, without its extension."""
    return out / f"{number:05d}"


def statistics(out: Path, rows: int) -> dict[str, Any]:
    """Return the number of addresses, of downloaded images, and of failures by reason."""
    found: Counter[str] = Counter()
    for path in _stats(out, rows):
        for message, count in json.loads(path.read_text())["status_dict"].items():
            reason = "" if message == "success" else error_category(message)
            found[reason] = found[reason] + count
    downloaded = found.pop("", 0)
    return {"addresses": rows, "downloaded": downloaded, "failed": dict(sorted(found.items()))}


def _stats(out: Path, rows: int) -> list[Path]:
    """Return the path of each shard's stats."""
    return [Path(f"{shard(out, number)}_stats.json") for number in range(-(-rows // SHARD))]


def download(table: Path, rows: int, out: Path, settings: Settings, program: str, processes: int) -> None:
    """Download the images at the addresses in a table into `out`; complete shards are kept.

    A shard with at least one downloaded image is not tried again. img2dataset ends with this process, also where this
    process is killed. One process downloads into a folder; a second process waits.

    Args:
        table: a parquet file with the column `url`.
        rows: the number of rows of the table.
        out: the folder of the shards.
        settings: the section `urls`.
        program: the path or name of the program img2dataset.
        processes: the number of its processes.

    Raises:
        DarkroomError: the program is missing, fails, or skips shards; the message says what to do.
    """
    out.mkdir(parents=True, exist_ok=True)
    with (out.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (left := _left(out, rows, vain=True)):
            print(f"all {rows:,} addresses were tried before: {out}")
            return
        found = shutil.which(program)
        if found is None:
            raise DarkroomError(
                f"the source `urls` downloads with img2dataset, and {program}, `run.img2dataset` in params.yaml, is "
                "not there: `make img2dataset` sets it up, once."
            )
        print(f"{rows:,} addresses in {-(-rows // SHARD):,} shards, of which {left:,} are left, into {out}")
        command = [str(Path(found).absolute()), *arguments(table, out, settings, processes)]
        code, last = _run(command, lock.fileno())
        if left := _left(out, rows):
            raise DarkroomError(
                f"img2dataset ended with exit code {code} and has {left:,} of {-(-rows // SHARD):,} shards left. Its "
                f"last lines: {' | '.join(last) or 'none'}. Start the stage again, and it goes on where it was; where "
                "it cannot start, `rm -r .venv.img2dataset` and `make img2dataset` set it up anew."
            )


def _left(out: Path, rows: int, vain: bool = False) -> int:
    """Return the number of shards without stats; incomplete stats are removed, so that the shard is tried again.

    vain: also remove those of shards without any downloaded image: usually the network was down. img2dataset writes
        stats then too, so a first try without a network would be the last.
    """
    left = 0
    for path in _stats(out, rows):
        try:
            done = json.loads(path.read_text())["status_dict"].get("success") or not vain
        except (FileNotFoundError, ValueError):
            done = False
        if not done:
            path.unlink(missing_ok=True)
            left += 1
    return left


def _run(command: Sequence[str], lock: int) -> tuple[int, list[str]]:
    """Run a program, print its output, and return its exit code and its last lines."""
    last: deque[str] = deque(maxlen=_LAST_LINES)
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_OURS} | _ENVIRONMENT
    # In a session of its own, so that Ctrl-C reaches this process alone. The program inherits the lock until it ends.
    with subprocess.Popen(
        [sys.executable, "-I", tether.__file__, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
        start_new_session=True,
        pass_fds=[lock],
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            for line in process.stdout:
                if line.strip():
                    print(line.rstrip())
                    last.append(line.strip())
        finally:
            process.stdin.close()
    return process.returncode, list(last)


_COLUMNS = ["key", "status", "error_message"]


@dataclass(frozen=True)
class Log:
    """The records of a shard.

    name: the file with the records.
    failed: the reason of each failed download, by key.
    stored: the keys in the tar; None: the file does not list them.
    count: the number of samples in the tar.
    """

    name: str
    failed: dict[str, str]
    stored: frozenset[str] | None
    count: int


def read_log(stem: str, read: Callable[[str], bytes | None]) -> Log | None:
    """Return img2dataset's records of the shard `stem`.tar; None: it has none.

    Args:
        stem: the name of the shard without its extension.
        read: returns the content of a file beside the shard, None where there is no such file.

    Raises:
        DarkroomError: a file of records cannot be read.
    """
    name = f"{stem}.parquet"
    if (data := read(name)) is not None:
        try:
            table = pq.ParquetFile(pa.BufferReader(data))
            if {"key", "status"} <= set(table.schema_arrow.names):
                present = [column for column in _COLUMNS if column in table.schema_arrow.names]
                return _of_rows(name, table.read(columns=present).to_pylist())
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(name, error) from error
    name = f"{stem}_stats.json"
    if (data := read(name)) is None:
        return None
    try:
        stats = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _unreadable(name, error) from error
    count = stats.get("successes") if isinstance(stats, dict) else None
    return Log(name, {}, None, count) if isinstance(count, int) else None


def _of_rows(name: str, rows: list[dict[str, str | None]]) -> Log:
    stored = frozenset(str(row["key"]) for row in rows if row["status"] == "success")
    failed = {
        str(row["key"]): f"{row['status']}: {error_category(row.get('error_message') or '')}"
        for row in rows
        if row["status"] != "success"
    }
    return Log(name, failed, stored, len(stored))


def _unreadable(name: str, error: Exception) -> DarkroomError:
    return DarkroomError(
        f"{name} beside the shard cannot be read ({error}): restore it, or remove it to go without what img2dataset "
        "says of failed downloads."
    )
