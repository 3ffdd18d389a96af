import numpy as np
import pytest
import torch

from darkroom.errors import DarkroomError
from darkroom.metrics.kernel import kernel_jackknife, kernel_subsets, within
from darkroom.metrics.uncertainty import assign_blocks


def draw(seed: int, n: int, d: int = 16) -> torch.Tensor:
    return torch.tensor(np.random.default_rng(seed).normal(size=(n, d)), dtype=torch.float32)


def test_it_is_torch_fidelitys() -> None:
    from torch_fidelity.metric_kid import kid_features_to_metric

    fake, real = draw(0, 90) * 1.3, draw(1, 120)
    mean, spread = kernel_subsets(fake, real, subsets=7, size=40)
    theirs = kid_features_to_metric(
        fake.double(), real.double(), kid_subsets=7, kid_subset_size=40, rng_seed=2020, verbose=False
    )
    assert mean == pytest.approx(theirs["kernel_inception_distance_mean"], rel=1e-9)
    assert spread == pytest.approx(theirs["kernel_inception_distance_std"], rel=1e-9)


def test_a_subset_of_all_is_the_full_form() -> None:
    fake, real = draw(0, 50) * 1.3, draw(1, 50)
    mean, spread = kernel_subsets(fake, real, subsets=2, size=50)
    assert mean == pytest.approx(kernel_jackknife(real, within(real), fake, assign_blocks(50, 5)).value, rel=1e-9)
    assert spread == pytest.approx(0, abs=1e-12)


def test_too_few_images_are_refused() -> None:
    with pytest.raises(DarkroomError, match="subsets of 1000 images cannot be drawn from 90 generated and 120 real"):
        kernel_subsets(draw(0, 90), draw(1, 120))
