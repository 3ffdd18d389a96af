"""Copies of training images are found, and honest images are not; the numbers are those of their definitions."""

import numpy as np
import pytest
import torch

from darkroom.errors import DarkroomError
from darkroom.metrics import memorisation as copies
from darkroom.metrics import nearest
from darkroom.metrics.memorisation import data_copying, gaps, nearer
from darkroom.metrics.nearest import Nearest, mirrored, moved, reduced


def draw(seed: int, *shape: int) -> torch.Tensor:
    return torch.tensor(np.random.default_rng(seed).normal(size=shape), dtype=torch.float32)


def search(queries: torch.Tensor, train: torch.Tensor, group: int = 7, real: slice = slice(None)) -> nearest.Closest:
    looking = Nearest(queries)
    for rows in train.split(group):
        looking.update(rows)
    return looking.settle(train[looking.candidates], real)


# ----------------------------------------------------------------------------------------------------------------------
# The nearest training images


@pytest.mark.parametrize(("rows", "group"), [(5, 3), (16, 40), (1024, 100)])
def test_what_is_nearest_is_exact_however_the_images_come(monkeypatch, rows, group):
    monkeypatch.setattr(nearest, "_ROWS", rows)
    monkeypatch.setattr(nearest, "_GROUP", 4)
    queries, train = draw(0, 1, 9, 5), draw(1, 100, 5) + 50  # far from the origin, where float32 products are rough
    queries = queries + 50
    found = search(queries, train, group)
    every = torch.cdist(queries[0].double(), train.double())
    expected = every.sort(dim=1)
    torch.testing.assert_close(found.nearest, expected.values[:, 0], rtol=1e-12, atol=0)
    torch.testing.assert_close(found.second, expected.values[:, 1], rtol=1e-12, atol=0)
    assert found.row.tolist() == expected.indices[:, 0].tolist()


def test_the_nearest_view_counts():
    train = draw(1, 50, 6)
    queries = torch.stack([draw(2, 4, 6) + 10, train[10:14]])
    assert search(queries, train).row.tolist() == [10, 11, 12, 13]


@pytest.mark.parametrize("times", [2, 5, 9])  # 9 of an image fill all candidates
def test_duplicates_among_the_training_images_hide_no_copy(times):
    train = draw(1, 40, 20)
    again = train[:1].repeat(times - 1, 1) + 1e-4 * draw(3, times - 1, 20)  # as stored once more, in another file
    queries = torch.cat([train[:2] + 0.01 * draw(4, 2, 20), draw(5, 20, 20)])[None]
    found = search(queries, torch.cat([train, again]), real=slice(2, None))
    assert (found.ratio[:2] < 0.05).all() and (found.ratio[2:] > 0.5).all()


def test_what_is_usual_is_that_of_real_images_however_many_are_copied():
    """Where nearly all images are copies, their own distances would make duplicates of a training image two images."""
    train = draw(1, 40, 20)
    again = train[:10] + 0.02 * draw(3, 10, 20)
    queries = torch.cat([train[:10] + 0.001 * draw(4, 10, 20), draw(5, 4, 20)])[None]
    assert (search(queries, torch.cat([train, again]), real=slice(10, None)).ratio[:10] < 0.01).all()


def test_an_exact_copy_has_the_ratio_0_also_where_all_images_are_equal():
    train = torch.ones(4, 3)
    assert search(torch.ones(1, 2, 3), train).ratio.tolist() == [0, 0]


def test_no_training_images_and_other_shapes_are_refused():
    with pytest.raises(DarkroomError, match="the train split is empty"):
        _ = Nearest(draw(0, 1, 2, 3)).candidates
    with pytest.raises(DarkroomError, match="training images of 4 values cannot be compared with images of 3"):
        Nearest(draw(0, 1, 2, 3)).update(draw(1, 5, 4))


def test_large_images_are_reduced_by_area_and_hidden_colours_do_not_count():
    image = torch.zeros(1, 3, 64, 64, dtype=torch.uint8)
    image[..., ::2, ::2] = 255
    small = reduced(image)
    assert small.shape == (1, 3, 32, 32) and torch.allclose(small, torch.tensor(0.25))
    clear = torch.cat([image, torch.zeros(1, 1, 64, 64, dtype=torch.uint8)], dim=1)
    assert not reduced(clear).any()


@pytest.mark.parametrize(("down", "right"), [(0, 0), (2, -1), (-2, 2)])
def test_an_image_that_was_moved_and_mirrored_meets_its_original(down, right):
    original = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    other = original.roll((down, right), (2, 3)).flip(3)
    views = mirrored(other, moved)
    assert len(views) == 2 * 25
    assert (views - nearest.middle(original)).norm(dim=2).min() == 0
    far = original.roll((3, 3), (2, 3))
    assert (mirrored(far, moved) - nearest.middle(original)).norm(dim=2).min() > 1


# ----------------------------------------------------------------------------------------------------------------------
# The numbers


@pytest.mark.parametrize("digits", [0, 1, 6])  # to whole numbers most distances are ties
def test_c_t_is_the_z_of_the_mann_whitney_test(digits):
    from scipy.stats import mannwhitneyu

    made, real = draw(0, 60).abs().double() * 3, draw(1, 45).abs().double() * 4
    made, real = (torch.round(of, decimals=digits) for of in (made, real))
    u, p = mannwhitneyu(made, real, use_continuity=False, method="asymptotic")
    z = data_copying(made, real)
    assert 2 * (1 - torch.distributions.Normal(0.0, 1.0).cdf(torch.tensor(abs(z)))).item() == pytest.approx(p, rel=1e-4)
    assert nearer(made, real) == pytest.approx(1 - u / (60 * 45), rel=1e-12)


def test_c_t_is_negative_where_made_images_lie_nearer_and_0_where_all_are_equal():
    near, far = torch.rand(20).double(), 1 + torch.rand(20).double()
    assert data_copying(near, far) < -5 < 5 < data_copying(far, near)
    assert data_copying(torch.ones(5).double(), torch.ones(6).double()) == 0


def test_shares_have_an_error_where_no_image_is_a_copy():
    found = nearest.Closest(torch.tensor([1.0, 1.0]).double(), torch.tensor([1.5, 2.0]).double(), torch.tensor([0, 1]))
    scores = copies.copied(found, "pixels")
    assert scores["copies_pixels"] == 0 and 0.1 < scores["copies_pixels_se"] < 0.4


@pytest.mark.slow
def test_a_gap_has_no_bias_and_its_error_is_no_smaller_than_that_of_repeats():
    """Of draws of one distribution. A jackknife of a squared distance near 0 errs on the side of more."""
    rows = [gaps(draw(3 * n, 60, 4), draw(3 * n + 1, 40, 4), draw(3 * n + 2, 40, 4), 5) for n in range(100)]
    for name in ("fd_gap", "kid_gap"):
        values, errors = (np.array([row[key] for row in rows]) for key in (name, f"{name}_se"))
        assert abs(values.mean()) < 3 * values.std() / 10
        assert 0.85 < np.sqrt((errors**2).mean()) / values.std() < 1.8


def test_a_gap_is_negative_where_the_images_are_the_training_images():
    """Of 16 features and 40 images, whose mean and covariance are their own."""
    train, unseen = draw(0, 40, 16), draw(1, 40, 16)
    found = gaps(train + 0.01 * draw(2, 40, 16), train, unseen, 5)
    assert found["fd_gap"] < -3 and found["kid_gap"] < 0
    with pytest.raises(DarkroomError, match="as many training as held-out images, not 40 and 39"):
        gaps(train, train, unseen[1:], 5)
