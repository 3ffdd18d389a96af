"""The tiny DAG and the toy DAG, each run once; tests that change something take a copy."""

from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

from dag.sandbox import ENGINES, Sandbox

Make = Callable[[str, Callable[[Path], Sandbox]], Sandbox]


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Make:
    """Return what makes a sandbox of a name: the first worker of a run that asks for it makes it for all."""
    base = tmp_path_factory.getbasetemp()

    def make(name: str, clone: Callable[[Path], Sandbox]) -> Sandbox:
        folder = (base if worker_id == "master" else base.parent) / name
        root = folder / "a clone with spaces"
        with FileLock(f"{folder}.lock"):
            if not folder.exists():
                folder.mkdir()
                sandbox = clone(root)
                (folder / "said.txt").write_text(sandbox.run(*ENGINES["snakemake"]))
                (folder / "status.txt").write_text(sandbox.run("git", "status", "--porcelain"))
                sandbox.commit("results")
                (folder / "done").touch()
        if not (folder / "done").exists():
            pytest.fail(f"{name} failed in another worker, which says how")
        return Sandbox(root)

    return make


@pytest.fixture(scope="session")
def committed(once: Make) -> Sandbox:
    """A clone in which Snakemake ran the tiny DAG, with dvc.lock and results committed. Leave it as it is."""
    return once("tiny", Sandbox.clone)


@pytest.fixture
def fresh(committed: Sandbox, tmp_path: Path) -> Sandbox:
    """Return a copy of the tiny DAG with everything up to date and committed, for one test to change."""
    return committed.copy(tmp_path / "a clone with spaces")


@pytest.fixture(scope="session")
def toy_made(once: Make) -> Sandbox:
    """A clone in which Snakemake ran the toy DAG, with dvc.lock and results committed. Leave it as it is."""
    return once("toy", Sandbox.clone_toy)


@pytest.fixture
def toy(toy_made: Sandbox, tmp_path: Path) -> Sandbox:
    """Return a copy of the toy DAG with everything up to date and committed, for one test to change."""
    return toy_made.copy(tmp_path / "a clone with spaces")
