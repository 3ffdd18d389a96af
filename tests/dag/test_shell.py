"""What stands in params.yaml reaches no shell: neither through `dvc repro` nor through `dvc exp run -S`."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from dvc.repo import Repo

from dag.sandbox import Sandbox
from darkroom.dag.stages import STAGES
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.stage import DVC, read_yaml
from helpers import DIGITS

ROOT = Path(__file__).resolve().parents[2]
NASTY = ("1; touch P", "$(touch P)", "`touch P`", "1\ntouch P\n", '"; touch P; "', "'; touch P; '")
TOGETHER = "1; touch P\n$(touch P) `touch P` \"; touch P; \" '; touch P; '"
COMMAND = "PYTHONPATH=src python -m darkroom"


def leaves(values: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every value of params.yaml that is no mapping, and of every mapping."""
    for key, value in values.items():
        yield (*path, key)
        if isinstance(value, Mapping):
            yield from leaves(value, (*path, key))


def with_value(values: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """Return a copy of nested mappings with another value at a path."""
    head, *rest = path
    return {**values, head: with_value(values[head], tuple(rest), value) if rest else value}


def attack(sandbox: Sandbox, *command: str) -> str:
    """Run what may fail, and return what it printed; no file P may come of it."""
    printed = sandbox.attempt(*command).stdout
    assert not list(sandbox.root.rglob("P")), f"{command} ran a command of params.yaml:\n{printed}"
    return printed


@pytest.mark.parametrize("value", [TOGETHER, *(pytest.param(value, marks=pytest.mark.slow) for value in NASTY)])
def test_no_command_comes_from_a_value_or_a_name(toy: Sandbox, value: str) -> None:
    """The stage that runs first says what is wrong with it."""
    quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    printed = attack(toy, "dvc", "exp", "run", "-S", f'train_extractor.training.images="{quoted}"')
    if "train_extractor.training.images" not in printed:  # Hydra's own grammar refuses some
        assert "Overrides" in printed or "override" in printed, printed
    toy.edit({"train_extractor": {"training": {"images": value}}})
    assert "train_extractor.training.images" in attack(toy, "dvc", "repro")
    toy.run("git", "checkout", "--quiet", "params.yaml")
    toy.edit({"parts": {value: {"source": "folder", "path": "data/first", "embeddings": "data/none"}}})
    printed = attack(toy, "dvc", "repro")
    assert "ERROR" in printed or "error" in printed, printed


def test_check_refuses_a_command_that_holds_a_value(clone: Path) -> None:
    from darkroom.check.check import check

    dvc = read_yaml(DVC)
    dvc["stages"]["train_generator"]["cmd"] += " --depth ${train_generator.dit.model.depth}"
    DVC.write_text(yaml.safe_dump(dvc))
    with pytest.raises(DarkroomError, match=r"command of train_generator is .*, but must be `PYTHONPATH=src python"):
        check()


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The DAG and its values in a repository without git, and nothing else."""
    (tmp_path / "params.yaml").write_text(DIGITS.read_text())
    (tmp_path / "dvc.yaml").write_text((ROOT / "dvc.yaml").read_text())
    for name in ("src", "docs", "data"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    Repo.init(no_scm=True).close()
    return tmp_path


def commands() -> set[str]:
    """Return the commands that DVC would run, as it resolves them; none where it refuses the values."""
    from dvc.exceptions import DvcException

    try:
        with Repo() as repo:
            return {stage.cmd for stage in repo.index.stages if stage.cmd}
    except DvcException:
        return set()


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("clone")
def test_dvc_resolves_the_same_commands_whatever_the_values() -> None:
    """Each value, and each section as a whole, set to every attack at once."""
    before = read_yaml(PARAMS)
    allowed = {f"{COMMAND} {stage}" for stage in STAGES}
    assert commands() == allowed
    paths, resolved = list(leaves(before)), 0
    for path in paths:
        PARAMS.write_text(yaml.safe_dump(with_value(before, path, TOGETHER), sort_keys=False))
        found = commands()
        assert found <= allowed, path
        resolved += bool(found)
    assert resolved > 0.8 * len(paths), "DVC refused nearly all, and nothing was tried"
