"""A clone in which nothing was run: params.yaml in the tiny configuration, dvc.yaml, and the code they name."""

import shutil
from concurrent.futures import Future
from contextlib import chdir, contextmanager
from pathlib import Path

import pytest
import yaml

from darkroom.check.check import read_params
from darkroom.params.stage import read_yaml
from darkroom.tools.times import below, consumers
from helpers import digits

SOURCE = Path(__file__).resolve().parents[3]
TINY = SOURCE / "tests/dag/tiny.yaml"


def overlay(values, changes):
    for key, change in changes.items():
        if isinstance(change, dict) and key != "parts":
            overlay(values[key], change)
        else:
            values[key] = change


def write_clone(folder):
    """Write all that it holds."""
    (folder / "params.yaml").write_text(digits())
    values = read_params(folder / "params.yaml")
    overlay(values, yaml.safe_load(TINY.read_text()))
    (folder / "params.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    shutil.copy(SOURCE / "dvc.yaml", folder)
    (folder / "src").symlink_to(SOURCE / "src")
    for name in ("data/none", "docs/dag.svg"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(SOURCE / name, folder / name)


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """The folder, which is the working folder; no environment variable that a plan sets outlives the test."""
    write_clone(tmp_path)
    enter_clone(tmp_path, monkeypatch)
    return tmp_path


def enter_clone(folder, monkeypatch):
    """Make it the working folder, and let no environment variable that a plan sets outlive the patch."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / ".darkroom/cache/compiled"))
    monkeypatch.setenv("PYTHONPATH", str(SOURCE / "src"))
    libraries = [f"{name}_NUM_THREADS" for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB_MAXIMUM")]
    for name in (*libraries, "CUDA_VISIBLE_DEVICES", "ACCELERATE_USE_CPU", "CUBLAS_WORKSPACE_CONFIG"):
        monkeypatch.setenv(name, "1" if name in libraries else "")


@pytest.fixture
def quick(clone, monkeypatch):
    """The folder, whose plan runs stages in this process; `quick(stale, known)` is what DVC says."""
    from darkroom.tools.plan import plan, rehearsal
    from darkroom.tools.plan.plan import Dag
    from darkroom.tools.plan.rehearsal import rehearse

    class Done(Future):
        def __init__(self, found):
            super().__init__()
            self.set_result(found)

    @contextmanager
    def here(count, *modules, **options):
        def submit(task, name, on):
            with monkeypatch.context() as only, chdir(clone):
                for variable in ("HF_HUB_OFFLINE", "http_proxy", "https_proxy"):
                    only.setenv(variable, "")
                return Done(rehearse(name, on))

        yield submit

    monkeypatch.setattr(rehearsal, "BUDGET", 0.0)
    monkeypatch.setattr(plan, "forks", here)

    def says(stale, known):
        after = below(consumers(read_yaml(Path("params.yaml")), read_yaml(Path("dvc.yaml"))))
        needs = {name: {each for each in known if stage(name) in after[stage(each)]} for name in known}
        monkeypatch.setattr(plan, "ask_dvc", lambda: Dag(list(known), set(stale), needs))
        return clone

    return says


def stage(name):
    return name.partition("@")[0]
