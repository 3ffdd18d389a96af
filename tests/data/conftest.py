import shutil
from pathlib import Path

import pytest

from data.making import make_part


@pytest.fixture(scope="session")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards of two parts, `first` (40 images) and `second` (20), sizes 7 a shard; tests get a copy."""
    root = tmp_path_factory.mktemp("parts") / "shards"
    make_part(root, "first", 0, 40)
    make_part(root, "second", 40, 60)
    return root


@pytest.fixture
def root(parts: Path, tmp_path: Path) -> Path:
    """A copy of both parts."""
    return shutil.copytree(parts, tmp_path / "shards")
