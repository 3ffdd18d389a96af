"""Batches: which row stands where, what a data set is told of it, and an order of its own."""

import itertools
import os
import signal
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from darkroom.data.streaming import StreamingOrder
from darkroom.errors import DarkroomError
from darkroom.models.clip.scores import CaptionedImages
from darkroom.models.decoder.data import ConditionedDataset
from darkroom.models.prior.recipe import CaptionedEmbeddings
from darkroom.rng import order
from darkroom.training.data import Images, StoredLatents
from darkroom.training.loader import GroupOrder, row_order, training_batches, validation_batches
from darkroom.training.loop import train
from helpers import run, training
from training.toy import Numbers, Toy, curves, places, weights

CPU = torch.device("cpu")
SEED = 3


class Told(Numbers):
    """Returns the rows and positions that it was asked for, and tensors as they are."""

    def __getitems__(self, rows, positions=None):
        told = [-1] * len(rows) if positions is None else positions
        return {"row": np.array(rows), "position": told, "half": torch.tensor(rows, dtype=torch.bfloat16)}


class Streamed(Told):
    """20 rows in 5 shards, 2 of which are read at a time."""

    def __init__(self):
        self.shards, self.fetched = StreamingOrder([4] * 5, window=2), []

    def order(self, seed, positions):
        return self.shards.order(seed, positions)

    def prefetch(self, seed, position):
        self.fetched.append((seed, position))

    def __getitems__(self, rows, positions=None):
        self.fetched.append("read")
        return super().__getitems__(rows, positions)


def joined(batches):
    batches = list(batches)
    positions = np.concatenate([batch.positions for batch in batches])
    return positions, {name: torch.cat([batch.data[name] for batch in batches]) for name in batches[0].data}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("made", [Told, Streamed])
def test_each_row_is_told_its_position_whoever_reads_it(made, workers):
    rows = made()
    positions, data = joined(training_batches(rows, SEED, 8, 56, 8, workers, CPU))
    assert positions.tolist() == data["position"].tolist() == list(range(8, 56))
    assert data["row"].tolist() == row_order(rows, SEED)(positions).tolist()
    assert data["half"].dtype == torch.bfloat16


@pytest.mark.parametrize("made", [Told, Streamed])
def test_processes_share_each_batch_and_together_read_what_one_reads(made):
    whole = joined(training_batches(made(), SEED, 0, 40, 8, 0, CPU))[1]["row"].reshape(5, 2, 4)
    for rank in (0, 1):
        positions, data = joined(training_batches(made(), SEED, 0, 40, 8, 0, CPU, rank, 2))
        assert data["row"].tolist() == whole[:, rank].flatten().tolist()
        assert data["position"].tolist() == positions.tolist()


def test_a_data_set_without_an_order_is_permuted_as_a_whole():
    assert row_order(Told(), SEED)(np.arange(30)).tolist() == order(SEED, 20, np.arange(30)).tolist()


def test_an_order_of_its_own_is_followed_in_training():
    """Of 20 rows in shards of 4, two shards at a time: the first 4 or 8 rows come from one or two shards."""
    rows = joined(training_batches(Streamed(), SEED, 0, 20, 4, 0, CPU))[1]["row"]
    assert sorted(rows.tolist()) == list(range(20))
    edges = [0, 4, 12, 20]  # windows of 1, 2 and 2 shards
    for begin, end in itertools.pairwise(edges):
        assert len({row // 4 for row in rows[begin:end].tolist()}) == (end - begin) // 4


def test_shards_are_fetched_before_each_batch_and_not_in_validation():
    rows = Streamed()
    list(training_batches(rows, SEED, 8, 24, 8, 0, CPU))
    assert rows.fetched == [(SEED, 8), "read", (SEED, 16), "read"]
    rows.fetched.clear()
    list(validation_batches(rows, 8, CPU))
    assert rows.fetched == ["read"] * 3


def test_validation_reads_all_rows_in_order_and_augments_none():
    positions, data = joined(validation_batches(Streamed(), 8, CPU))
    assert positions.tolist() == data["row"].tolist() == list(range(20))
    assert (data["position"] == -1).all()
    shares = [joined(validation_batches(Told(), 8, CPU, rank, 2))[0].tolist() for rank in (0, 1)]
    assert shares == [[*range(8), *range(16, 20)], list(range(8, 16))]


class StreamedNumbers(Streamed):
    """The toy's numbers, plus a noise that follows from the position as an augmentation does."""

    def __getitems__(self, rows, positions=None):
        x = Numbers.__getitems__(self, rows)["x"]
        return {"x": x if positions is None else x + np.float32(0.01) * (positions[:, None] % 7).astype(np.float32)}


def streamed(hook=None):
    recipe = Toy(hook)
    recipe.train = StreamedNumbers()
    return recipe


def test_a_streamed_training_continues_bit_for_bit(tmp_path):
    whole = train(streamed(), training(), run(), places(tmp_path / "whole"))
    hook = lambda seen: os.kill(os.getpid(), signal.SIGTERM) if seen == 24 else None  # noqa: E731
    with pytest.raises(SystemExit):
        train(streamed(hook), training(), run(), places(tmp_path))
    resumed = train(streamed(), training(), run(workers=2), places(tmp_path))
    assert weights(resumed) == weights(whole) != weights(train(Toy(), training(), run(), places(tmp_path / "other")))
    assert curves(tmp_path / "curves") == curves(tmp_path / "whole" / "curves")


def test_the_keys_of_an_update_are_those_of_its_own_order(tmp_path):
    from darkroom.training.start import open_training

    recipe = streamed()
    trainer = open_training(recipe, training(), run(), places(tmp_path))
    expected = recipe.train.order(training().seed, np.arange(8, 16))
    assert trainer._keys(8) == [f"key{row}" for row in expected.tolist()]


@pytest.mark.parametrize("made", [Told, Streamed])
def test_without_a_shuffle_each_epoch_has_the_order_of_the_shards(made):
    rows = made()
    _, data = joined(training_batches(rows, SEED, 8, 3 * len(rows), 4, 0, CPU, shuffle=False))
    assert data["row"].tolist() == [position % len(rows) for position in range(8, 3 * len(rows))]
    if made is Streamed:  # what the shuffled order would need next is not what is read
        assert set(rows.fetched) == {"read"}


def test_a_training_without_a_shuffle_reads_and_names_the_rows_in_their_order(tmp_path):
    read, toy = [], Toy()
    plain = toy.train.__getitems__

    def noted(rows, positions=None):
        read.extend(rows)
        return plain(rows, positions)

    toy.train.__getitems__ = noted
    trainer = train(toy, training(images=32, shuffle=False), run(), places(tmp_path))
    assert read == [position % len(toy.train) for position in range(32)]
    assert trainer._keys(8) == toy.train.keys([position % len(toy.train) for position in range(8, 16)])


@given(st.lists(st.integers(0, 6), min_size=1, max_size=40), st.integers(0, 9))
def test_by_groups_each_group_and_each_of_its_images_is_equally_frequent(drawn, seed):
    groups = np.unique(drawn, return_inverse=True)[1]
    sizes = np.bincount(groups)
    assume(sizes.max() > 1 or len(groups) == 1)
    epochs = int(np.lcm.reduce(sizes))
    rows = GroupOrder(seed, groups)(np.arange(len(sizes) * epochs)).reshape(epochs, len(sizes))
    assert (np.sort(groups[rows], axis=1) == np.arange(len(sizes))).all()
    assert (np.bincount(rows.reshape(-1)) == epochs // sizes[groups]).all()
    some = np.array([len(sizes) * epochs - 1, 0])
    assert (GroupOrder(seed, groups)(some) == rows.reshape(-1)[some]).all()  # a position alone decides


class Grouped(Streamed):
    """Rows 0 to 14 are one group; 15 to 19 are each their own."""

    groups = np.array([0] * 15 + [1, 2, 3, 4, 5])


@pytest.mark.parametrize("count", [1, 2])
def test_a_training_by_groups_reads_each_group_once_in_an_epoch_and_fetches_no_window(count):
    rows = Grouped()
    batches = [
        joined(training_batches(rows, SEED, 0, 24, 6, 0, CPU, rank, count, "groups"))[1]["row"] for rank in range(count)
    ]
    read = torch.cat([each.reshape(4, -1) for each in batches], 1).numpy()
    assert (np.sort(Grouped.groups[read], axis=1) == np.arange(6)).all()
    assert len(set(read[read < 15].tolist())) == 4
    assert rows.fetched == ["read"] * 4 * count


def test_groups_of_one_image_each_are_refused_and_rows_without_groups_are_shuffled():
    with pytest.raises(DarkroomError, match="no two images are of one group: set it to true"):
        GroupOrder(SEED, np.arange(20))
    positions = np.arange(30)
    assert row_order(Told(), SEED, "groups")(positions).tolist() == row_order(Told(), SEED)(positions).tolist()


@pytest.mark.parametrize("made", [Images, StoredLatents, CaptionedImages, CaptionedEmbeddings, ConditionedDataset])
def test_a_data_set_has_the_groups_of_its_rows(made):
    groups, rows = np.array([4, 4, 7, 9]), np.array([0, 2, 3])
    stored = made.__new__(made)
    stored.shards = SimpleNamespace(groups=groups, shards=[])
    stored.rows = SimpleNamespace(groups=groups) if made is ConditionedDataset else rows
    expected = groups[rows] if made in (CaptionedImages, CaptionedEmbeddings) else groups
    assert stored.groups.tolist() == expected.tolist()


def test_groups_of_remote_images_are_refused():
    stored = Images.__new__(Images)
    stored.shards = SimpleNamespace(shards=[SimpleNamespace(tar="https://example.org/0.tar")])
    with pytest.raises(DarkroomError, match=r"needs local images, but https://example.org/0.tar is remote: set it to"):
        _ = stored.groups
