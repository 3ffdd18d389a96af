from pathlib import Path

import pytest

from data.making import make_part


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Shards of two parts, `first` (40 images) and `second` (20), sizes 7 a shard."""
    make_part(tmp_path / "shards", "first", 0, 40)
    make_part(tmp_path / "shards", "second", 40, 60)
    return tmp_path / "shards"
