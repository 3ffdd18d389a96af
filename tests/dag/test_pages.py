"""The commands of README, tutorials and other pages, and the notebooks, run in a clone with the tiny DAG."""

import json
import re
import sys
from pathlib import Path

import pytest

from dag.sandbox import SOURCE, Sandbox
from test_docs import ROOT, blocks

TUTORIALS = [ROOT / "README.md", *sorted((ROOT / "docs/tutorials").glob("*.md"))]
OTHERS = [page for folder in ("how-to", "explanation") for page in sorted((ROOT / f"docs/{folder}").glob("*.md"))]
# What needs the network, a second machine or another environment; the other commands of a block run.
ELSEWHERE = re.compile(r"\s*(make|git (clone|add)|cd|source|pip|npm|kubectl|srun|#|$)|.*(--profile|--download)")


def run(page: Path, clone: Sandbox) -> None:
    """Run the blocks of a page in order, in one shell each, as a user pastes them."""
    for block in blocks(page, "bash", runs=True):
        lines = [line for line in block.replace("\\\n", " ").splitlines() if not ELSEWHERE.match(line)]
        if lines:
            clone.run("bash", "-ec", "\n".join(lines))


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_runs(fresh: Sandbox, page: Path) -> None:
    run(page, fresh)


@pytest.mark.slow
@pytest.mark.parametrize("page", OTHERS, ids=lambda page: page.stem)
def test_a_page_runs(fresh: Sandbox, page: Path) -> None:
    run(page, fresh)


@pytest.mark.parametrize("name", sorted(path.stem for path in (SOURCE / "notebooks").glob("*.ipynb")))
def test_a_notebook_runs(committed: Sandbox, name: str) -> None:
    cells = json.loads((SOURCE / f"notebooks/{name}.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(code) > 3
    committed.run(sys.executable, "-c", "\n".join(code))
