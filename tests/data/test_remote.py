import http.server
import multiprocessing
import pickle
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from darkroom.artifacts.manifest import ArtifactError, sha256_bytes
from darkroom.data.remote import GIGABYTES, Cache, RemoteShards, require_url
from darkroom.data.tar_files import OpenFiles, TarFiles
from darkroom.errors import DarkroomError
from darkroom.remote import is_remote


class Server:
    """A real HTTP server of this machine: counts what is asked of it, and fails when told to."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.gets: Counter[str] = Counter()
        self.faults: list[str] = []  # of the next GETs: a status, or "cut"
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self.answer(body=False)

            def do_GET(self) -> None:
                server.gets[self.path] += 1
                self.answer(body=True)

            def answer(self, body: bool) -> None:
                fault = server.faults.pop(0) if body and server.faults else ""
                data = server.files.get(self.path.partition("?")[0])
                if data is None or fault.isdigit():
                    self.send_error(404 if data is None else int(fault))
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.send_header("ETag", sha256_bytes(data)[:8])
                self.end_headers()
                if body:
                    self.wfile.write(data[: len(data) // 2] if fault == "cut" else data)

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def server(running: Server) -> Server:
    running.files.clear()
    running.gets.clear()
    running.faults.clear()
    return running


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache", limit=10_000)


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()


def shards(cache: Cache, sha256: dict[str, str] | None = None) -> RemoteShards:
    return RemoteShards(sha256, cache, pause=0)


def names(cache: Cache) -> list[str]:
    return [path.name for path in cache.folder.iterdir() if not path.name.endswith("lock")]


def test_a_shard_is_fetched_once_and_again_when_it_changed(server: Server, cache: Cache) -> None:
    server.files["/0.tar"] = b"first"
    url = f"{server.url}/0.tar"
    path = shards(cache).fetch(url)
    assert path.read_bytes() == b"first"
    assert shards(cache).fetch(url) == path
    assert server.gets["/0.tar"] == 1
    server.files["/0.tar"] = b"other"  # as long; its ETag tells
    assert shards(cache).fetch(url).read_bytes() == b"other"


def test_memory_is_a_file_system_too(cache: Cache, memory: fsspec.AbstractFileSystem) -> None:
    memory.pipe_file("/bucket/0.tar", b"content")
    assert shards(cache).fetch("memory://bucket/0.tar").read_bytes() == b"content"


def test_a_known_shard_in_the_cache_needs_no_network(server: Server, cache: Cache) -> None:
    server.files["/0.tar"] = b"first"
    url = f"{server.url}/0.tar"
    path = shards(cache).fetch(url)
    server.files.clear()
    known = shards(cache, {url: sha256_bytes(b"first")})
    assert known.fetch(url) == path
    with pytest.raises(DarkroomError, match="cannot fetch"):
        shards(cache).fetch(url)


def test_another_shard_than_the_one_ingested_is_refused(server: Server, cache: Cache) -> None:
    server.files["/0.tar"] = b"other"
    url = f"{server.url}/0.tar"
    with pytest.raises(ArtifactError, match=rf"{url} differs from the file that was ingested.*ingest@PART"):
        shards(cache, {url: sha256_bytes(b"first")}).fetch(url)
    assert names(cache) == []


def test_a_network_that_fails_is_asked_again(server: Server, cache: Cache) -> None:
    server.files["/0.tar"] = b"first" * 1000
    server.faults = ["503", "cut", "429"]
    assert shards(cache).fetch(f"{server.url}/0.tar").read_bytes() == b"first" * 1000
    assert server.gets["/0.tar"] == 4


def test_a_network_that_fails_always_is_a_sentence_without_secrets(server: Server, cache: Cache) -> None:
    server.files["/0.tar"] = b"first"
    server.faults = ["503"] * 9
    url = f"{server.url}/0.tar?token=s3cret"
    with pytest.raises(DarkroomError) as caught:
        shards(cache).fetch(url)
    assert str(caught.value).startswith(f"cannot fetch {server.url}/0.tar: ")
    assert "s3cret" not in str(caught.value)
    assert "503" in str(caught.value)
    assert names(cache) == []
    gets = server.gets.total()
    with pytest.raises(DarkroomError, match=r"cannot fetch .*/none\.tar"):
        shards(cache).fetch(f"{server.url}/none.tar")  # what is not there is not asked for again and again
    assert server.gets.total() <= gets + 1


def test_the_cache_holds_what_was_used_last(server: Server, cache: Cache) -> None:
    for number in range(4):
        server.files[f"/{number}.tar"] = bytes([number]) * 4000
    some = shards(cache)

    def fetch(number: int) -> Path:
        path = some.fetch(f"{server.url}/{number}.tar")
        assert sum(file.stat().st_size for file in cache.folder.glob("*.tar")) <= cache.limit
        return path

    zero, one = fetch(0), fetch(1)
    assert fetch(0) == zero  # used again
    fetch(2)
    assert zero.exists()
    assert not one.exists()
    fetch(3)
    assert not zero.exists()


def test_what_is_open_is_read_also_after_it_left_the_cache(server: Server, cache: Cache) -> None:
    for number in range(3):
        server.files[f"/{number}.tar"] = bytes([number]) * 9000
    urls = [f"{server.url}/{number}.tar" for number in range(3)]
    files = OpenFiles(TarFiles(urls, cache=cache), max_open=1)
    assert files.read(0, 8999, 9) == b"\0"
    shards(cache).fetch(urls[1])
    assert len(list(cache.folder.glob("*.tar"))) == 1
    assert files.read(0, 0, 2) == b"\0\0" and server.gets["/0.tar"] == 1
    assert files.read(2, 0, 1) == b"\2"  # now the first is closed
    assert files.read(0, 0, 2) == b"\0\0" and server.gets["/0.tar"] == 2  # fetched again


def test_a_file_that_goes_between_being_found_and_being_opened_is_fetched_again(tmp_path: Path) -> None:
    calls = []

    def locate(number: int) -> Path:
        calls.append(number)
        if len(calls) > 1:
            (tmp_path / "0.tar").write_bytes(b"here")
        return tmp_path / "0.tar"

    assert OpenFiles(locate).read(0, 0, 4) == b"here"
    assert len(calls) == 2


def _fetch(cache: Cache, url: str) -> bytes:
    return RemoteShards(cache=cache, pause=0).fetch(url).read_bytes()


def test_several_processes_and_threads_fetch_once(server: Server, cache: Cache) -> None:
    server.files["/0.tar"] = b"first" * 1000
    with multiprocessing.get_context("fork").Pool(3) as pool:
        found = pool.starmap_async(_fetch, [(cache, f"{server.url}/0.tar")] * 6, chunksize=1).get(timeout=60)
    assert found == [b"first" * 1000] * 6
    threads = [threading.Thread(target=_fetch, args=(cache, f"{server.url}/0.tar")) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.gets["/0.tar"] == 1


def test_what_a_killed_process_left_is_written_over(server: Server, cache: Cache) -> None:
    server.files["/0.tar"] = b"first"
    server.faults = ["503"] * 9
    url = f"{server.url}/0.tar"
    with pytest.raises(DarkroomError):
        shards(cache).fetch(url)
    (lock,) = cache.folder.glob("*.lock")
    (cache.folder / f".{lock.stem}.part").write_bytes(b"half of it, and more than there is")
    server.faults.clear()
    assert shards(cache).fetch(url).read_bytes() == b"first"
    assert len(names(cache)) == 1


def test_prefetched_shards_need_no_fetching(server: Server, cache: Cache) -> None:
    for number in range(2):
        server.files[f"/{number}.tar"] = bytes([number]) * 4000
    urls = [f"{server.url}/{number}.tar" for number in range(2)]
    some = shards(cache)
    some.prefetch([urls[0], f"{server.url}/none.tar", urls[1]])  # what fails is left to fetch
    assert some._thread is not None
    some._thread.join()
    copy = pickle.loads(pickle.dumps(some))
    assert [copy.fetch(url).read_bytes()[0] for url in urls] == [0, 1]
    assert (server.gets["/0.tar"], server.gets["/1.tar"]) == (1, 1)


def test_a_full_disk_is_not_the_networks_fault(server: Server, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(url: str, part: Path, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("darkroom.data.remote._copy", full)
    server.files["/0.tar"] = b"first"
    with pytest.raises(OSError, match="No space"):
        shards(cache).fetch(f"{server.url}/0.tar")


def test_the_limit_is_what_params_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GIGABYTES, "0.5")
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    assert Cache().limit == 2**29
    assert Cache().folder == tmp_path / ".darkroom/cache/shards"


# --- addresses ---


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("pipe:curl -s https://example.org/0.tar", "are never run"),
        (" PIPE:cat 0.tar", "are never run"),
        ("cat 0.tar |", "are never run"),
        ("| cat 0.tar", "are never run"),
        ("exec:ls", "neither a path nor a URL"),
        ("sh://ls", "neither a path nor a URL that fsspec reads"),
        ("https://anna:s3cret@example.org/0.tar", "contains a password"),
    ],
)
def test_urls_that_do_more_than_name_a_file_are_refused(url: str, what: str) -> None:
    with pytest.raises(DarkroomError, match=f"`webdataset.url` .*{what}") as caught:
        require_url(url, "webdataset.url")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["https://example.org/0.tar", "s3://b/0.tar", "data/a:b/0.tar", "/mnt/0.tar", "file:///a"]
)
def test_urls_and_paths_are_allowed(url: str) -> None:
    require_url(url, "webdataset.url")
    assert is_remote(url) == url.startswith(("https", "s3"))
