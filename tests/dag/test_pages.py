"""The commands and Python blocks of README, tutorials and other pages, and the notebooks, run on the tiny DAG."""

import json
import re
import sys
from pathlib import Path

import pytest
import yaml

from dag.sandbox import SOURCE, TINY, Sandbox
from test_docs import ROOT, blocks

# What needs the network, a second machine, own images or another environment; the other lines of a block run.
ELSEWHERE = re.compile(
    r"\s*((make|git (clone|add)|cd|source|pip|npm|kubectl|srun|darkroom init)\b|#|$)|.*--(profile|download)\b"
)
# The pages have image counts of real runs; the tiny DAG has few.
MANY = re.compile(r"(?<=images=)\d{3,}")


def scripts(page: Path) -> list[str]:
    """Return the lines of each bash block that run here."""
    texts = [MANY.sub("96", text.replace("\\\n", " ")).splitlines() for text in blocks(page, "bash", runs=True)]
    return ["\n".join(line for line in lines if not ELSEWHERE.match(line)) for lines in texts]


def pages(*folders: str) -> list[Path]:
    """Return the pages of some folders with commands that run."""
    return [page for folder in folders for page in sorted((ROOT / folder).glob("*.md")) if any(scripts(page))]


def run(page: Path, clone: Sandbox) -> None:
    """Run the blocks of a page in order, each in a shell, as a user pastes them."""
    for script in filter(None, scripts(page)):
        clone.run("bash", "-ec", script)


def test_most_tutorials_have_commands_that_run() -> None:
    assert {"README", "first-run", "did-it-help", "text-to-image"} <= {
        page.stem for page in pages(".", "docs/tutorials")
    }


@pytest.fixture(scope="module")
def captioned(committed: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    """Return the tiny DAG with scenes, split by caption, and a transformer that reads captions, as in the default."""
    clone = committed.copy(tmp_path_factory.mktemp("captioned") / "a clone with spaces")
    shapes = yaml.safe_load((SOURCE / "presets/shapes.yaml").read_text())
    tiny = yaml.safe_load(TINY.read_text())
    parts = {name: {**part, "source": "shapes", "settings": {"size": 16}} for name, part in tiny.pop("parts").items()}
    clone.edit({key: shapes[key] for key in ("shapes", "ingest", "train_generator", "train_clip", "train_decoder")})
    clone.edit(tiny | {"parts": parts})
    clone.snakemake()
    clone.commit("captions")
    return clone


@pytest.mark.parametrize("page", pages(".", "docs/tutorials"), ids=lambda page: page.stem)
def test_a_tutorial_runs(captioned: Sandbox, committed: Sandbox, page: Path, tmp_path: Path) -> None:
    clone = committed if page.stem == "text-to-image" else captioned  # it is about CLIP, prior and decoder
    run(page, clone.copy(tmp_path / "a clone with spaces"))


@pytest.mark.slow
@pytest.mark.parametrize("page", pages("docs/how-to", "docs/explanation", "docs/reference"), ids=lambda page: page.stem)
def test_a_page_runs(fresh: Sandbox, page: Path) -> None:
    run(page, fresh)


@pytest.mark.parametrize("page", ["README.md", "docs/reference/python.md"])
def test_python_blocks_run(captioned: Sandbox, page: str) -> None:
    code = "\n".join(blocks(ROOT / page, "python"))
    captioned.run(
        sys.executable, "-c", f"{code}\nassert images.shape[0] == 16 and latents.shape[0] == 16 and len(table)"
    )


@pytest.mark.parametrize("name", sorted(path.stem for path in (SOURCE / "notebooks").glob("*.ipynb")))
def test_a_notebook_runs(captioned: Sandbox, name: str) -> None:
    cells = json.loads((SOURCE / f"notebooks/{name}.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(code) > 3
    captioned.run(sys.executable, "-c", "\n".join(code))
