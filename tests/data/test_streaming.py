"""The streaming order: every row once an epoch, a few shards at a time, a function of the position alone."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from darkroom.data.streaming import StreamingOrder

sizes = st.lists(st.integers(0, 12), min_size=1, max_size=20).filter(any)
windows = st.integers(1, 6)
seeds = st.integers(0, 2**40)


def shards_of(rows, sizes):
    return np.searchsorted(np.cumsum(sizes), rows, side="right")


@given(sizes, windows, seeds)
def test_each_epoch_has_every_row_once(sizes, window, seed):
    made = StreamingOrder(sizes, window)
    assert made.rows == sum(sizes)
    for epoch in (0, 1, 5):
        rows = made.order(seed, np.arange(epoch * made.rows, (epoch + 1) * made.rows))
        assert sorted(rows.tolist()) == list(range(made.rows))


@given(sizes, windows, seeds, st.data())
def test_a_row_depends_on_its_position_alone(sizes, window, seed, data):
    """Resumed at k, asked for in any order, or by another process: the same rows."""
    whole = StreamingOrder(sizes, window).order(seed, np.arange(3 * sum(sizes)))
    k = data.draw(st.integers(0, len(whole)))
    resumed = pickle.loads(pickle.dumps(StreamingOrder(sizes, window)))
    assert (resumed.order(seed, np.arange(k, len(whole))) == whole[k:]).all()
    some = data.draw(st.permutations(range(len(whole))))
    assert (resumed.order(seed, some) == whole[some]).all()


@given(sizes, windows, seeds)
def test_few_shards_are_needed_at_once_and_each_in_one_window(sizes, window, seed):
    made = StreamingOrder(sizes, window)
    shards = shards_of(made.order(seed, np.arange(made.rows)), sizes)
    last = {shard: place for place, shard in enumerate(shards.tolist())}
    first = {shard: place for place, shard in reversed(list(enumerate(shards.tolist())))}
    # A window begins where all shards met before are done with.
    edges = [0] + [at for at in range(1, len(shards)) if max(last[s] for s in first if first[s] < at) < at]
    for begin, end in zip(edges, [*edges[1:], len(shards)], strict=True):
        assert len(set(shards[begin:end].tolist())) <= window


@given(sizes, windows, seeds, st.data())
def test_what_comes_next_is_foretold(sizes, window, seed, data):
    made = StreamingOrder(sizes, window)
    position = data.draw(st.integers(0, 3 * made.rows - 1))
    told = made.upcoming(seed, position)
    assert len(told) == len(set(told)) <= 2 * window
    # Whatever is asked for while a window lasts was foretold: in the last row of a window, all of the next one.
    rest = shards_of(made.order(seed, np.arange(position, position + 1)), sizes)
    assert set(rest.tolist()) <= set(told[:window])


def test_the_next_window_is_foretold_also_across_epochs():
    sizes = [5] * 7
    made = StreamingOrder(sizes, 3)  # windows of 2, 2 and 3 shards
    shards = shards_of(made.order(4, np.arange(70)), sizes)
    edges = [0, 10, 20, 35, 45, 55, 70]
    for begin, middle, end in zip(edges, edges[1:], edges[2:], strict=False):
        for position in (begin, middle - 1):
            assert set(made.upcoming(4, position)) == set(shards[begin:end].tolist())


def test_epochs_windows_and_seeds_differ():
    made = StreamingOrder([50] * 8, 4)
    one, two = (made.order(0, np.arange(epoch * 400, (epoch + 1) * 400)) for epoch in (0, 1))
    assert (one != two).any() and (one != made.order(1, np.arange(400))).any()
    assert (one[:200] % 50 != one[200:] % 50).any()  # the second window is not shuffled as the first
    assert set(shards_of(one[:200], [50] * 8)) != set(shards_of(two[:200], [50] * 8))


def test_rows_of_a_window_are_mixed():
    shards = shards_of(StreamingOrder([100] * 6, 3).order(0, np.arange(300)), [100] * 6)
    changes = (np.diff(shards) != 0).mean()  # 2/3 where each of three shards is as likely as the others
    assert 0.5 < changes < 0.8


def test_the_last_window_is_no_smaller_than_it_must_be():
    """9 shards in windows of at most 8: 4 and 5, and not 8 and 1, which would hardly be shuffled."""
    shards = shards_of(StreamingOrder([10] * 9, 8).order(0, np.arange(90)), [10] * 9)
    assert len(set(shards[:40].tolist())) == 4


def test_many_shards_take_little_time_and_memory():
    import time
    import tracemalloc

    made = StreamingOrder([10_000] * 40_000)
    tracemalloc.start()
    began = time.process_time()
    rows = made.order(0, np.arange(123_456_789, 123_456_789 + 4096))
    seconds = time.process_time() - began
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(np.unique(rows)) == 4096
    assert seconds < 0.5 and peak < 10 * 2**20  # of 400 million images


@pytest.mark.parametrize(("sizes", "positions"), [([], [0]), ([0], [0]), ([3], [-1])])
def test_no_rows_and_no_position_before_the_first(sizes, positions):
    with pytest.raises(ValueError, match="at least one row"):
        StreamingOrder(sizes).order(0, positions)
