"""The whole tiny DAG, run once by each engine; tests that change something take a copy."""

from functools import partial
from pathlib import Path

import pytest
from filelock import FileLock

from dag.sandbox import ENGINES, SAID, Sandbox, side_by_side

COMMITTED = "committed"


def _make(roots: dict[str, Path]) -> None:
    """Let each engine run everything, side by side, since DVC by itself keeps one core busy; commit a copy."""

    def run(engine: str) -> Sandbox:
        sandbox = Sandbox.clone(roots[engine])
        (sandbox.root.parent / SAID).write_text(sandbox.run(*ENGINES[engine]))
        return sandbox

    told = side_by_side({engine: partial(run, engine) for engine in ENGINES})
    made = {engine: sandbox.result() for engine, sandbox in told.items()}
    made["snakemake"].copy(roots[COMMITTED]).commit("results")


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> dict[str, Sandbox]:
    """Clones that the first worker of a run who asks for them makes for all."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "dag"
    roots = {
        "dvc": folder / "dvc" / "clone",
        "snakemake": folder / "snakemake" / "a clone with spaces",
        COMMITTED: folder / "committed" / "a clone with spaces",
    }
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            folder.mkdir()
            _make(roots)
            (folder / "done").touch()
    if not (folder / "done").exists():
        pytest.fail("the tiny DAG failed in another worker, which says how")
    return {name: Sandbox(root) for name, root in roots.items()}


@pytest.fixture(scope="session")
def by_snakemake(made: dict[str, Sandbox]) -> Sandbox:
    """A clone under a folder with spaces in which Snakemake ran everything. Leave it as it is."""
    return made["snakemake"]


@pytest.fixture(scope="session")
def by_dvc(made: dict[str, Sandbox]) -> Sandbox:
    """A clone in which DVC ran everything. Leave it as it is."""
    return made["dvc"]


@pytest.fixture(scope="session")
def committed(made: dict[str, Sandbox]) -> Sandbox:
    """A copy of what Snakemake made, with dvc.lock and results committed. Leave it as it is."""
    return made[COMMITTED]


@pytest.fixture
def fresh(committed: Sandbox, tmp_path: Path) -> Sandbox:
    """Return a copy with everything up to date and committed, for one test to change."""
    return committed.copy(tmp_path / "a clone with spaces")


@pytest.fixture(scope="session")
def guided(committed: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Sandbox, list[str]]]:
    """Copies in which each engine ran another guidance, and the bodies that ran. Leave them as they are."""
    roots = {engine: tmp_path_factory.mktemp(f"guided-{engine}") / "a clone with spaces" for engine in ENGINES}

    def change(engine: str) -> tuple[Sandbox, list[str]]:
        sandbox = committed.copy(roots[engine])
        sandbox.edit({"sample_generator": {"dit": {"guidance": 3.0}}})
        with sandbox.bodies() as ran:
            sandbox.run(*ENGINES[engine])
        return sandbox, ran

    told = side_by_side({engine: partial(change, engine) for engine in ENGINES})
    return {engine: metadata.result() for engine, metadata in told.items()}
