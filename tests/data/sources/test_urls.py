"""The source `urls`, with a program that behaves as img2dataset's command line does, and with the real one."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from darkroom.check.check import read_params
from darkroom.data.damage import Reason
from darkroom.data.reader import ImageShards
from darkroom.data.sample import Raw
from darkroom.data.sources.downloads import error_category
from darkroom.data.sources.urls import Urls
from darkroom.errors import DarkroomError
from darkroom.params.ingest import Params
from darkroom.params.parts import Urls as Settings
from darkroom.stages import ingest
from data.sources.outcomes import outcomes
from programs import write_program

ROOT = Path(__file__).parents[3]
VALUES = read_params(ROOT / "params.yaml")
REAL = Path(os.environ.get("DARKROOM_IMG2DATASET", ROOT / VALUES["run"]["img2dataset"]))

# What img2dataset does with its command line: shards without stats are made, in the order of completion, here from the
# last row to the first. An address ending in 404 fails, one in `lost` leaves no trace at all.
STAND_IN = """
    import io, json, os, pathlib, subprocess, sys, tarfile, time
    import pyarrow as pa, pyarrow.parquet as pq
    from PIL import Image

    given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
    here, out = pathlib.Path(__file__).parent, pathlib.Path(given["--output_folder"])
    size = int(given["--number_sample_per_shard"])
    urls = pq.read_table(given["--url_list"])["url"].to_pylist()
    (here / "given.json").write_text(json.dumps([given, urls, sorted(os.environ)]))
    out.mkdir(exist_ok=True)
    done = 0
    for shard in range(-(-len(urls) // size)):
        stem = f"{out}/{shard:05d}"
        if os.path.exists(stem + "_stats.json"):
            continue
        if (here / "hang").exists():
            helper = subprocess.Popen(["sleep", "1000"])
            print("pids", helper.pid, os.getpid(), flush=True)
            helper.wait()
        if (here / "stop").exists() and done == int((here / "stop").read_text()):
            sys.exit("the disk is full")
        rows, words = [], {}
        with tarfile.open(stem + ".tar", "w") as tar:
            for place in reversed(range(len(urls[shard * size : (shard + 1) * size]))):
                row = shard * size + place
                key, url = f"{row:06d}", urls[row]
                if url.endswith("lost"):
                    continue
                offline = "<urlopen error [Errno -3] Temporary failure in name resolution>"
                error = "HTTP Error 404: Not Found" if url.endswith("404") else None if url else "unknown url type: ''"
                error = offline if (here / "offline").exists() else error
                words[error or "success"] = words.get(error or "success", 0) + 1
                status = "failed_to_download" if error else "success"
                rows.append({"key": key, "status": status, "error_message": error})
                if error is None:
                    buffer = io.BytesIO()
                    Image.new("RGB", (9, 8), (row % 256, row // 256, 7)).save(buffer, "PNG")
                    for name, data in (("jpg", buffer.getvalue()), ("json", b"{}")):
                        member = tarfile.TarInfo(f"{key}.{name}")
                        member.size = len(data)
                        tar.addfile(member, io.BytesIO(data))
        schema = pa.schema([(name, pa.string()) for name in ("key", "status", "error_message")])
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), stem + ".parquet")
        pathlib.Path(stem + "_stats.json").write_text(json.dumps({"status_dict": words, "start_time": time.time()}))
        print("made shard", shard)
        done += 1
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the program `bin/img2dataset`; shards of 10."""
    monkeypatch.chdir(tmp_path)
    for room in ("downloads", "urls"):
        monkeypatch.setattr(f"darkroom.data.sources.{room}.SHARD", 10)
    write_program(tmp_path / "bin/img2dataset", STAND_IN)
    return tmp_path


def settings(**changes: Any) -> Settings:
    return Settings.model_validate({**VALUES["urls"], "label_column": "label", **changes})


def run(program: str = "bin/img2dataset") -> Any:
    return SimpleNamespace(img2dataset=program, ingest_processes=1)


def table(rows: int = 25, **changes: str | None) -> Path:
    """Write urls.parquet; a change `row_3` is the address of that row."""
    urls: list[str | None] = [f"https://example.org/{row}.jpg" for row in range(rows)]
    for row, url in changes.items():
        urls[int(row.removeprefix("row_"))] = url
    columns = {
        "url": urls,
        "caption": [f"number {row}" for row in range(rows)],
        "label": [row % 3 for row in range(rows)],
    }
    pq.write_table(pa.table(columns), "urls.parquet", row_group_size=4)
    return Path("urls.parquet")


def colour(raw: Any) -> int:
    pixel = Image.open(io.BytesIO(raw.image)).getpixel((0, 0))
    return pixel[0] + 256 * pixel[1]  # type: ignore[index]


def test_every_row_comes_in_its_order_with_its_own_image_or_is_listed(here: Path) -> None:
    path = table(row_3="https://example.org/404", row_17="https://example.org/lost", row_24=None)
    source = Urls(settings(), path, run())
    found = outcomes(source)
    assert [key for key, _, _ in found] == [f"urls-{row:08d}" for row in range(25)]
    for row, (_, where, what) in enumerate(found):
        if row in (3, 17):
            assert what == Reason.DOWNLOAD_FAILED
        elif row == 24:
            assert what == Reason.MISSING
        else:
            assert isinstance(what, Raw)
            assert (colour(what), what.label, what.caption) == (row, str(row % 3), f"number {row}")
            assert where == f"row {row}: https://example.org/{row}.jpg"
    assert source.metadata() == {"addresses": 25, "downloaded": 22, "failed": {"HTTP 404": 1, "not an address": 1}}


def test_a_slice_downloads_its_rows_alone(here: Path) -> None:
    found = outcomes(Urls(settings(), table(), run()), 6, 17)
    assert [(key, what.label) for key, _, what in found] == [(f"urls-{row:08d}", str(row % 3)) for row in range(6, 17)]  # type: ignore[union-attr]
    assert json.loads((here / "bin/given.json").read_text())[1] == [
        f"https://example.org/{row}.jpg" for row in range(6, 17)
    ]


def test_a_download_that_stopped_goes_on_with_what_is_left(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table(40)
    (here / "bin/stop").write_text("2")
    with pytest.raises(
        DarkroomError, match=r"exit code 1 and has 2 of 4 shards left.*the disk is full.*Start the stage again"
    ):
        outcomes(Urls(settings(), path, run()))
    (here / "bin/stop").unlink()
    (stats,) = here.glob(".darkroom/downloads/urls/*/shards/00001_stats.json")
    stats.write_text('{"count": 1')  # was being written when the machine went down
    capsys.readouterr()
    assert len(outcomes(Urls(settings(), path, run()))) == 40
    assert [line for line in capsys.readouterr().out.splitlines() if "made" in line] == [
        f"made shard {n}" for n in (1, 2, 3)
    ]
    outcomes(Urls(settings(), path, run("bin/not-needed-any-more")))
    assert "all 40 addresses were tried before" in capsys.readouterr().out


def test_a_first_try_without_a_network_is_not_the_last(here: Path) -> None:
    path = table(25, row_3="https://example.org/404")
    (here / "bin/offline").touch()
    assert {what for _, _, what in outcomes(Urls(settings(), path, run()))} == {Reason.DOWNLOAD_FAILED}
    (here / "bin/offline").unlink()
    found = outcomes(Urls(settings(), path, run()))
    assert [row for row, (_, _, what) in enumerate(found) if not isinstance(what, Raw)] == [3]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_download_ends_with_the_stage(here: Path, number: int) -> None:
    table()
    (here / "bin/hang").touch()
    code = "from test_urls import *; outcomes(Urls(settings(), Path('urls.parquet'), run()))"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(ROOT / "tests"), str(ROOT / "src")]),
    }
    stage = subprocess.Popen(
        [sys.executable, "-u", "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
        # Tests that a shell has put in the background inherit that Ctrl-C is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert stage.stdout is not None
    line = next(line for line in stage.stdout if line.startswith("pids"))
    programs = [psutil.Process(int(pid)) for pid in line.split()[1:]]
    stage.send_signal(number)
    assert psutil.wait_procs(programs, timeout=20)[1] == []
    stage.wait(20)
    stage.stdout.close()


def test_no_program_is_one_sentence_that_says_how_to_get_it(here: Path) -> None:
    with pytest.raises(
        DarkroomError, match=r"\.venv\.img2dataset/bin/img2dataset, `run.img2dataset`.*`make img2dataset`"
    ):
        outcomes(Urls(settings(), table(), run(VALUES["run"]["img2dataset"])))


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_column_that_is_not_there_is_named_before_any_download(here: Path, ending: str) -> None:
    Path("urls.csv").write_text("url,caption,label\n")
    table()
    with pytest.raises(DarkroomError, match=f"urls.{ending} has no column `link`: it has `url`, `caption`, `label`"):
        Urls(settings(url_column="link"), Path(f"urls.{ending}"), run())
    assert not Path(".darkroom").exists()


def test_a_csv_keeps_labels_as_they_are_written_and_mends_captions(here: Path) -> None:
    lines = [
        "url,caption,label",
        'https://a.org/1,"two\nlines, a comma",007',
        "https://a.org/2,gr\xf6\xdfer, gr\xf6\xdfer ",
        "https://a.org/3,,",
    ]
    Path("URLS.CSV").write_bytes("\n".join(lines).encode("latin-1"))
    found = [what for _, _, what in outcomes(Urls(settings(), Path("URLS.CSV"), run()))]
    assert [what.label for what in found if isinstance(what, Raw)] == ["007", r"gr\xf6\xdfer", None]
    assert [what.caption for what in found if isinstance(what, Raw)] == ["two\nlines, a comma", "größer", None]
    reasons = [[finding.reason for finding in what.findings] for what in found if isinstance(what, Raw)]
    assert reasons == [[], [Reason.CAPTION_NOT_UTF8], [Reason.CAPTION_MISSING, Reason.LABEL_MISSING]]


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "cannot be read"), (b"PAR1 and no more", "cannot be read"), (None, "is missing")],
)
@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_table_that_cannot_be_read_is_named(here: Path, content: bytes | None, message: str, ending: str) -> None:
    if content is not None:
        Path(f"bad.{ending}").write_bytes(content)
    with pytest.raises(DarkroomError, match=rf"bad\.{ending}.*({message}|has no column)"):
        Urls(settings(), Path(f"bad.{ending}"), run())


def test_a_nested_column_is_named_before_any_download(here: Path) -> None:
    pq.write_table(pa.table({"url": [["https://example.org/0.jpg"]], "label": ["a"]}), "urls.parquet")
    with pytest.raises(DarkroomError, match=r"urls\.parquet: `url` holds list<.*, and must hold texts or numbers"):
        Urls(settings(caption_column=None), Path("urls.parquet"), run())


def test_only_http_is_asked_for_and_odd_letters_are_escaped(here: Path) -> None:
    path = table(
        5,
        row_0="file:///etc/passwd",
        row_1="data:image/png;base64,AAAA",
        row_2=" HTTPS://a.org/ä b%20c?q=1#x ",
        row_3="",
    )
    found = outcomes(Urls(settings(), path, run()))
    given, urls, environment = json.loads((here / "bin/given.json").read_text())
    assert urls == ["", "", "HTTPS://a.org/%C3%A4%20b%20c?q=1#x", "", "https://example.org/4.jpg"]
    assert [what for _, _, what in found if not isinstance(what, Raw)] == [
        Reason.DOWNLOAD_FAILED,
        Reason.DOWNLOAD_FAILED,
        Reason.MISSING,
    ]
    assert given["--enable_wandb"] == "False" and "NO_ALBUMENTATIONS_UPDATE" in environment
    assert "PYTHONPATH" not in environment


def test_what_was_downloaded_is_kept_by_addresses_and_settings(here: Path) -> None:
    for changed in ({}, {"resize": 32}):
        outcomes(Urls(settings(**changed), table(), run()))
    assert len(list(Path(".darkroom/downloads/urls").glob("*/shards"))) == 2
    outcomes(Urls(settings(label_column=None, caption_column=None, mirror=True), table(), run("nothing")))
    with pytest.raises(DarkroomError, match="make img2dataset"):
        outcomes(Urls(settings(), table(row_0="https://example.org/other"), run("nothing")))


def test_planning_downloads_nothing(here: Path) -> None:
    with pytest.raises(DarkroomError, match="downloaded by `ingest`"):
        Urls(settings(), table()).entries(0, None)


def test_a_tar_that_was_cut_off_is_named(here: Path) -> None:
    outcomes(Urls(settings(), table(), run()))
    tar = next(here.glob(".darkroom/downloads/urls/*/shards/00001.tar"))
    tar.write_bytes(tar.read_bytes()[:5000])
    with pytest.raises(DarkroomError, match=r"00001.tar is damaged .*: remove its folder"):
        outcomes(Urls(settings(), table(), run("not-needed-any-more")))


def ingested(path: Path, **values: Any) -> Path:
    part = {"source": "urls", "path": str(path), "settings": {"label_column": "label"}}
    cut = {key: VALUES[key] for key in ("urls", "ingest")}
    cut["ingest"] = {**cut["ingest"], "image_size": 8}
    params = {**cut, "run": {**VALUES["run"], "img2dataset": "bin/img2dataset", **values}, "parts": {"web": part}}
    ingest.run(Params.model_validate(params), "web")
    return Path("data/shards/web")


def test_ingest_stores_images_and_lists_failures_without_passwords(here: Path) -> None:
    secret = "https://me:hunter2@example.org/x?token=hunter2&is=404"
    folder = ingested(table(row_3=secret, row_4="ftp://me:hunter2@example.org/x"))
    images = ImageShards.open_parts(["web"], "train")
    row = list(images.keys).index("urls-00000000")
    assert (images.captions[row], images.labels[row]) == ("number 0", "0")
    listed = pq.read_table(folder / "quarantine.parquet").to_pylist()
    failed = [row["key"] for row in listed if row["reason"] == "download_failed"]
    assert failed == ["urls-00000003", "urls-00000004"]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["source"]["downloaded"] == 23
    assert not any("hunter2" in str(row) for row in listed) and "hunter2" not in str(manifest)
    assert str(here) not in str(manifest)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("HTTP Error 503: https://me:hunter2@a.org", "HTTP 503"),
        ("<urlopen error [Errno 8] nodename nor servname provided, or not known>", "no such host"),
        ("The read operation timed out", "no answer in time"),
        ("unknown url type: 'gopher://me:hunter2@a.org'", "not an address"),
        ("something new about https://me:hunter2@a.org", "another error"),
        ("Image decoding error", "img2dataset cannot decode it"),
    ],
)
def test_messages_become_one_of_a_few_words(message: str, words: str) -> None:
    assert error_category(message) == words


def picture(number: int, **options: Any) -> bytes:
    buffer = io.BytesIO()
    pixels = np.random.default_rng(number).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(buffer, **options)
    return buffer.getvalue()


class Server(BaseHTTPRequestHandler):
    asked: list[str]

    def do_GET(self) -> None:
        name = self.path.strip("/").partition("?")[0]
        self.asked.append(name)
        if name == "gone":
            self.send_error(404)
            return
        exif = Image.Exif()
        exif[0x0112] = 6  # to be turned by 90 degrees
        bodies = {
            "page": b"<html>",
            "cut": picture(1, format="PNG")[:300],
            "turned": picture(2, format="JPEG", exif=exif),
        }
        body = bodies.get(name) or picture(int(name), format="JPEG")
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        if name == "7":
            self.send_header("X-Robots-Tag", "noai")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    Server.asked = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{found.server_port}/", Server.asked
        found.shutdown()


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_file(), reason=f"{REAL} is not there: `make img2dataset` sets it up")
def test_the_real_img2dataset(here: Path, server: tuple[str, list[str]]) -> None:
    base, asked = server
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    names = [*map(str, range(12)), "gone", "page", "cut", "turned"]
    urls = [base + name for name in names] + [f"http://127.0.0.1:{port}/x", "file:///etc/hostname", None]
    changes = {f"row_{row}": url for row, url in enumerate(urls)}
    source = Urls(settings(retries=0), table(len(urls), **changes), run(str(REAL)))
    found = outcomes(source)
    raws = {row: what for row, (_, _, what) in enumerate(found) if isinstance(what, Raw)}
    assert sorted(raws) == [row for row in range(16) if row not in (7, 12)]
    for row, raw in raws.items():  # as the server gave them, bit by bit, each at its own row
        assert row in (13, 14, 15) or raw.image == picture(row, format="JPEG")
    assert Image.open(io.BytesIO(raws[15].image)).getexif()[0x0112] == 6  # type: ignore[arg-type]
    failed = {"HTTP 404": 1, "no connection": 1, "not an address": 2, "the server forbids it by X-Robots-Tag": 1}
    assert source.metadata() == {"addresses": 19, "downloaded": 14, "failed": failed}
    # A shard without stats is fetched again, the other is not.
    next(here.glob(".darkroom/downloads/urls/*/shards/00001_stats.json")).unlink()
    asked.clear()
    assert outcomes(Urls(settings(retries=0), Path("urls.parquet"), run(str(REAL)))) == found
    assert sorted(asked) == ["10", "11", "cut", "gone", "page", "turned"]
    small = outcomes(Urls(settings(retries=0, resize=10), Path("urls.parquet"), run(str(REAL))))
    assert Image.open(io.BytesIO(small[0][2].image)).size == (15, 10)  # type: ignore[union-attr, arg-type]
