import json

import numpy as np
import torch

from darkroom.diffusion.scalers import EmbeddingScaler, spaced_rows


def test_what_tells_images_apart_has_unit_variance_however_narrow_the_cone() -> None:
    cone = 1 + 0.01 * np.random.default_rng(0).standard_normal((500, 4))
    cone[:, 3] = 7
    standard = EmbeddingScaler.of(cone)
    found = standard(torch.from_numpy(cone)).double().numpy()
    np.testing.assert_allclose(found[:, :3].mean(axis=0), 0, atol=2e-3)
    np.testing.assert_allclose(found[:, :3].std(axis=0), 1, atol=1e-3)
    assert not found[:, 3].any()


def test_it_comes_back_from_a_manifest_to_the_bit() -> None:
    standard = EmbeddingScaler.of(np.random.default_rng(1).standard_normal((50, 8)))
    again = EmbeddingScaler.from_facts(json.loads(json.dumps(standard.metadata())))
    assert torch.equal(again.mean, standard.mean) and torch.equal(again.std, standard.std)


def test_rows_are_spread() -> None:
    assert spaced_rows(5) == [0, 1, 2, 3, 4]
    rows = spaced_rows(100_000)
    assert len(rows) == 4096 and rows[0] == 0 and rows[-1] == 99_999


def test_a_larger_collection_is_told_by_as_many_rows() -> None:
    rows = spaced_rows(10_000_000, 1024)
    assert len(rows) == 1024 and rows[0] == 0 and rows[-1] == 9_999_999
