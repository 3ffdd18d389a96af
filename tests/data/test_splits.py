from hypothesis import given
from hypothesis import strategies as st

from darkroom.data.splits import SPLITS, split_of, uniform_hash

KEYS = [f"key-{number}" for number in range(2000)]


@st.composite
def fractions(draw: st.DrawFn) -> dict[str, float]:
    weights = [draw(st.integers(1, 100)), draw(st.integers(0, 100)), draw(st.integers(0, 100))]
    return {name: weight / sum(weights) for name, weight in zip(SPLITS, weights, strict=True)}


def members(wanted: dict[str, float], seed: int) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {split: set() for split in SPLITS}
    for key in KEYS:
        found[split_of(key, wanted, seed)].add(key)
    return found


@given(fractions(), st.integers(0, 1000))
def test_shares_are_met(wanted: dict[str, float], seed: int) -> None:
    found = members(wanted, seed)
    for split in SPLITS:
        # Six standard deviations of a binomial share of 2000 keys are at most 6 * sqrt(0.25 / 2000) = 0.067.
        assert abs(len(found[split]) / len(KEYS) - wanted[split]) < 0.067
        assert wanted[split] > 0 or not found[split]


@given(fractions(), fractions(), st.integers(0, 1000))
def test_a_split_that_grows_at_the_cost_of_the_others_keeps_its_members(
    before: dict[str, float], after: dict[str, float], seed: int
) -> None:
    old, new = members(before, seed), members(after, seed)
    for split in SPLITS:
        if all(after[other] <= before[other] for other in SPLITS if other != split):
            assert old[split] <= new[split]


def test_the_seed_and_the_key_decide_and_nothing_else() -> None:
    wanted = {"train": 0.5, "val": 0.25, "test": 0.25}
    assert members(wanted, 0) != members(wanted, 1)
    assert members(wanted, 3) == members(wanted, 3)


def test_places_are_fixed_for_good() -> None:
    """A change would move images between the splits of everybody's data."""
    assert uniform_hash(0, "digits-0042") == 0.6346874154951075
    assert split_of("digits-0042", {"train": 0.6, "val": 0.1, "test": 0.3}, 0) == "val"
