"""Results through a DVC remote, a folder or S3 by moto: another clone has nothing to do; damage is refused by name."""

import importlib.util
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import fsspec
import pytest

from dag.sandbox import Sandbox

MISSING = [name for name in ("dvc_s3", "moto") if importlib.util.find_spec(name) is None]
S3 = pytest.param(
    "s3",
    marks=[
        pytest.mark.slow,
        pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}: docs/how-to/share-results.md"),
    ],
)
# As docs/how-to/share-results.md has them.
CHOSEN = "$(dvc stage list --name-only | grep -E '^(train|sample|score)_|^report$')"


class Store(NamedTuple):
    """A remote: its URL and settings for DVC, and the files behind it."""

    url: str
    settings: dict[str, str]
    files: Any  # fsspec's file system
    root: str

    def path(self, md5: str) -> str:
        """Return where DVC keeps an object."""
        return f"{self.root}/files/md5/{md5[:2]}/{md5[2:]}"


@pytest.fixture(params=["folder", S3])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """An empty remote. Ask for it before sandboxes, which copy the environment with its keys."""
    if request.param == "folder":
        folder = str(tmp_path / "a store")
        yield Store(folder, {}, fsspec.filesystem("file"), folder)
        return
    from moto.server import ThreadedMotoServer

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        files = fsspec.filesystem("s3", endpoint_url=endpoint, skip_instance_cache=True, use_listings_cache=False)
        files.makedirs("bucket", exist_ok=True)  # moto keeps it for all servers of the process
        root = f"bucket/{tmp_path.name}"
        yield Store(f"s3://{root}", {"endpointurl": endpoint}, files, root)
    finally:
        server.stop()


@pytest.fixture
def mine(store: Store, toy: Sandbox, tmp_path: Path) -> Sandbox:
    """The toy DAG with the remote, in a clone of a bare repository."""
    toy.dvc("remote", "add", "--default", "store", store.url)
    for key, value in store.settings.items():
        toy.dvc("remote", "modify", "store", key, value)
    toy.commit("remote")
    toy.run("git", "clone", "--quiet", "--bare", ".", str(tmp_path / "shared.git"))
    toy.run("git", "remote", "add", "origin", str(tmp_path / "shared.git"))
    return toy


@pytest.fixture
def theirs(mine: Sandbox, tmp_path: Path) -> Sandbox:
    """A second clone of the bare repository, without outputs."""
    root = tmp_path / "elsewhere" / "a second clone"
    subprocess.run(["git", "clone", "--quiet", tmp_path / "shared.git", root], check=True)
    return Sandbox(root)


@pytest.mark.slow
def test_another_clone_has_nothing_to_do_and_restores_an_experiment(mine: Sandbox, theirs: Sandbox) -> None:
    mine.dvc("exp", "run", "--name", "other", "-S", "train_extractor.training.seed=1")
    experiment = mine.hashes()
    mine.run("git", "checkout", "--quiet", ".")
    mine.dvc("checkout")

    mine.run("sh", "-c", f"dvc push {CHOSEN}")
    theirs.dvc("pull", "--allow-missing")
    chosen = ("train_extractor", "score_generator", "report")
    assert theirs.hashes(*chosen) == mine.hashes(*chosen) and theirs.hashes("ingest@first") == {}

    mine.dvc("push")
    theirs.dvc("pull")
    assert theirs.hashes() == mine.hashes() != experiment
    theirs.assert_nothing_to_do()

    mine.dvc("exp", "push", "origin", "other")
    with theirs.bodies() as ran:
        theirs.dvc("exp", "pull", "origin", "other")
        theirs.dvc("exp", "apply", "other")
    assert ran == [] and theirs.hashes() == experiment
    theirs.assert_nothing_to_do()


def test_damaged_and_missing_objects_are_refused_by_name(store: Store, mine: Sandbox, theirs: Sandbox) -> None:
    mine.dvc("push")
    listing = mine.lock()["report"]["outs"][0]["md5"]
    (page,) = json.loads(store.files.cat_file(store.path(listing)))
    path = store.path(page["md5"])

    content = store.files.cat_file(path)
    store.files.rm_file(path)
    store.files.pipe_file(path, b"x" + content[1:])
    if not store.settings:
        Path(path).chmod(0o444)  # DVC trusts an object that is read-only
    output = theirs.fails("dvc", "pull")
    assert "failed for following targets:\nreports\n" in output and not (theirs.root / "reports").exists(), output

    store.files.rm_file(path)
    output = theirs.fails("dvc", "pull")
    assert f"failed to transfer '{page['md5']}'" in output, output

    listed = store.files.cat_file(store.path(listing))
    store.files.rm_file(store.path(listing))
    store.files.pipe_file(store.path(listing), b"[]")
    shutil.rmtree(theirs.root / ".dvc/cache")  # which has the true list
    assert theirs.fails("dvc", "pull") and not (theirs.root / "reports").exists()
    assert listed != b"[]"

    # `dvc push` takes all files of a listing for there, so the listing goes, too.
    store.files.rm_file(store.path(listing))
    mine.dvc("push")
    theirs.dvc("pull")
    assert store.files.cat_file(path) == content and theirs.stale() == set()
