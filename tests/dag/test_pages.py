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
# What `first-run` and README run, too.
SLOW = {"did-it-help"}
NOTEBOOKS = sorted((SOURCE / "notebooks").glob("*.ipynb"))
PYTHON = ["README.md", "docs/reference/python.md", *(f"notebooks/{path.name}" for path in NOTEBOOKS)]
# Runs the programs of a JSON file, each with names of its own, and writes the errors beside it.
ONE_BY_ONE = """
import json, sys, traceback
from pathlib import Path
path, errors = Path(sys.argv[1]), {}
for name, code in json.loads(path.read_text()).items():
    try:
        exec(compile(code, name, "exec"), {"__name__": "__main__"})
    except BaseException:
        errors[name] = traceback.format_exc()
path.with_name("errors.json").write_text(json.dumps(errors))
"""


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


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=[pytest.mark.slow] * (page.stem in SLOW))
        for page in pages(".", "docs/tutorials")
    ],
)
def test_a_tutorial_runs(captioned: Sandbox, committed: Sandbox, page: Path, tmp_path: Path) -> None:
    clone = committed if page.stem == "text-to-image" else captioned  # it is about CLIP, prior and decoder
    run(page, clone.copy(tmp_path / "a clone with spaces"))


@pytest.mark.slow
@pytest.mark.parametrize("page", pages("docs/how-to", "docs/explanation", "docs/reference"), ids=lambda page: page.stem)
def test_a_page_runs(fresh: Sandbox, page: Path) -> None:
    run(page, fresh)


def python(name: str) -> str:
    """Return the Python of a page or a notebook."""
    if name.endswith(".md"):
        checked = "assert images.shape[0] == 16 and latents.shape[0] == 16 and len(table)"
        return "\n".join([*blocks(ROOT / name, "python"), checked])
    cells = json.loads((SOURCE / name).read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(code) > 3
    return "\n".join(code)


@pytest.fixture(scope="module")
def errors(captioned: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what went wrong in the Python of pages and notebooks, which one process ran."""
    path = tmp_path_factory.mktemp("python") / "programs.json"
    path.write_text(json.dumps({name: python(name) for name in PYTHON}))
    captioned.run(sys.executable, "-c", ONE_BY_ONE, str(path))
    return json.loads(path.with_name("errors.json").read_text())


@pytest.mark.parametrize("name", PYTHON)
def test_python_runs(errors: dict[str, str], name: str) -> None:
    assert name not in errors, errors[name]
