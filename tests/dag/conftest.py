"""The whole tiny DAG, run once by each engine; tests that change something take a copy."""

from pathlib import Path

import pytest

from dag.sandbox import Sandbox


@pytest.fixture(scope="session")
def by_snakemake(tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    """A clone under a folder with spaces in which Snakemake ran everything. Leave it as it is."""
    sandbox = Sandbox.clone(tmp_path_factory.mktemp("snakemake") / "a clone with spaces")
    sandbox.snakemake()
    return sandbox


@pytest.fixture(scope="session")
def by_dvc(tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    """A clone in which DVC ran everything. Leave it as it is."""
    sandbox = Sandbox.clone(tmp_path_factory.mktemp("dvc") / "clone")
    sandbox.dvc("repro")
    return sandbox


@pytest.fixture(scope="session")
def committed(by_snakemake: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    """A copy of what Snakemake made, with dvc.lock and metrics committed. Leave it as it is."""
    sandbox = by_snakemake.copy(tmp_path_factory.mktemp("committed") / "a clone with spaces")
    sandbox.commit("results")
    return sandbox


@pytest.fixture
def fresh(committed: Sandbox, tmp_path: Path) -> Sandbox:
    """Return a copy with everything up to date and committed, for one test to change."""
    return committed.copy(tmp_path / "a clone with spaces")
