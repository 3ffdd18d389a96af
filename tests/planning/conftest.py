"""A clone in which nothing was run: params.yaml in the tiny configuration, dvc.yaml, and the code they name."""

import shutil
from pathlib import Path

import pytest
import yaml

from darkroom.params import read_yaml

SOURCE = Path(__file__).resolve().parents[2]
TINY = SOURCE / "tests/dag/tiny.yaml"


def overlay(values, changes):
    for key, change in changes.items():
        if isinstance(change, dict) and key != "parts":
            overlay(values[key], change)
        else:
            values[key] = change


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """The folder, which is the working folder; no environment variable that a plan sets outlives the test."""
    values = read_yaml(SOURCE / "params.yaml")
    overlay(values, yaml.safe_load(TINY.read_text()))
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    shutil.copy(SOURCE / "dvc.yaml", tmp_path)
    (tmp_path / "src").symlink_to(SOURCE / "src")
    for name in ("data/none", "docs/dag.svg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(SOURCE / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    libraries = [f"{name}_NUM_THREADS" for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB_MAXIMUM")]
    for name in (*libraries, "CUDA_VISIBLE_DEVICES", "ACCELERATE_USE_CPU", "CUBLAS_WORKSPACE_CONFIG"):
        monkeypatch.setenv(name, "1" if name in libraries else "")
    return tmp_path
