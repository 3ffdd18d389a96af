"""What all tests of models share."""

from collections.abc import Iterator
from functools import cache

import pytest

from darkroom.check import check


@pytest.fixture(scope="module", autouse=True)
def one_schema() -> Iterator[None]:
    """Make the class that validates params.yaml once a module: its first use takes 0.1 s."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check, "whole", cache(check.whole))
        yield
