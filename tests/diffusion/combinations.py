"""Combinations of keys: each value, or each pair of values, in one of them; and what `darkroom check` says of them.

A key that the settings gain becomes an axis by itself where its values are named in its type; a number needs a line in
`NUMBERS`.
"""

import heapq
import random
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, count, product
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from darkroom.diffusion.settings import SOLVERS
from darkroom.params.section import description

Row = dict[str, Any]  # from a key of params.yaml to its value
Refusal = Callable[[Row], str | None]  # what `darkroom check` says of a row; None: it accepts
Pair = frozenset[tuple[str, Any]]

# Of keys whose types name no values, those that are tried, the default first.
NUMBERS: dict[str, tuple[Any, ...]] = {
    "time_shift": (1.0, 3.0),
    "timesteps": (8, 4, 3),
    "bound_weight": (0.001, 1.0),
    "p2_gamma": (0.0, 0.5),
    "min_snr": (None, 5.0),
    "label_dropout": (0.1, 0.0),
    "word_dropout": (0.05, 0.2),
    "image_dropout": (0.1, 0.0),
    "text_dropout": (0.2, 0.0),
    "embedding_noise": (0.0, 0.3),
    "steps": (2, 1, 5, "ddim3", "1,2"),
    "eta": (0.0, 0.5),
    "diffusion_scale": (1.0, 0.5),
    "last_step": (0.04, 0.1),
    "guidance": (1.0, 2.0, 0.0),
    "guidance_channels": (None, 1),
    "guidance_from": (0.0, 0.3),
    "guidance_to": (1.0, 0.3),
    "classifier": ("data/none", "models/classifier"),
    "classifier_scale": (0.0, 1.0),
    "image_tokens": (0, 2),
    "image_map": (0, 3),
    "dropout": (0.0, 0.5),
    "context_length": (None, 8),
    "patch_bottleneck": (None, 4),
}
# Keys of sizes, of numbers that change no branch, and of what lies on the disk.
LEFT_OUT = {
    *("size", "width", "depth", "heads", "patch", "mlp_ratio", "channels", "attention", "layers", "head_dim"),
    *("norm_groups", "time_mean", "time_std", "p2_k", "latent_scale", "percentile", "low_noise", "candidates", "batch"),
    *("guide", "mean_flow"),
}


def axes_of(section: str, settings: type[BaseModel], objective: str, only: Iterable[str] = ()) -> dict[str, list[Any]]:
    """Return the keys of a section with their values, the default first, without those that the objective ignores.

    Args:
        section: its key.
        settings: its class.
        objective: keys whose description begins with another one are left out.
        only: the keys that are wanted; none: all.
    """
    axes: dict[str, list[Any]] = {}
    for name, each in settings.model_fields.items():
        others = tuple(other for other in SOLVERS if other != objective)
        ignored = re.match(rf"({'|'.join(others)})\b[^.]*:", description(settings, name))
        if name == "objective":
            axes[f"{section}.{name}"] = [objective]
        elif name not in LEFT_OUT and not ignored and (not only or name in only):
            values = [*(each.default,) * (name not in NUMBERS), *NUMBERS.get(name, ()), *_named(each.annotation)]
            assert len(values) > 1, f"{section}.{name}: NUMBERS needs values to try"
            axes[f"{section}.{name}"] = list(dict.fromkeys(values))
    return axes


def _named(annotation: Any) -> list[Any]:
    """Return the values that a type names."""
    if annotation is bool:
        return [False, True]
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [value for part in get_args(annotation) for value in _named(part)]


def named(sentence: str, keys: Iterable[str]) -> list[str]:
    """Return those keys that a sentence names, each by its whole name, or below the section that it begins with."""
    head = re.match(r"params\.yaml: `([\w.]+)`: ", sentence)
    found = []
    for key in keys:
        names = [key, *([key.removeprefix(f"{head[1]}.")] if head and key.startswith(f"{head[1]}.") else [])]
        if any(re.search(rf"(?<![\w.]){re.escape(name)}(?![\w]|\.\w)", sentence) for name in names):
            found.append(key)
    return found


class Search:
    """Looks for accepted rows: changes a refused one by the keys that its refusal names, as a person would.

    refusals: of the rows that were refused on the way, each sentence with the first of its rows.
    known: what is refused, by the keys that the refusal names and their values.
    apart: pairs that no accepted row has; values that none has, as pairs of one.
    """

    def __init__(self, axes: Mapping[str, list[Any]], refusal: Refusal, seed: int = 0) -> None:
        self.all, self.refusal = dict(axes), refusal
        self.axes = {key: list(values) for key, values in axes.items()}
        self.random, self.count = random.Random(seed), count(1)
        self.refusals: dict[str, Row] = {}
        self.known: dict[Pair, str] = {}
        self.apart: set[Pair] = set()
        self.only = {key for key, values in axes.items() if len(values) == 1}
        base = self.mended({key: values[0] for key, values in axes.items()}, self.only)
        assert base is not None
        self.base = base

    def refused(self, row: Row) -> tuple[str, Pair] | None:
        """Return why a row is refused and by which of its values; None: it is accepted."""
        items = row.items()
        for values, sentence in self.known.items():
            if values <= items:
                return sentence, values
        sentence = self.refusal(row)
        if sentence is None:
            return None
        sentence = sentence.splitlines()[0]  # of several faults the first
        values = frozenset((key, row[key]) for key in named(sentence, row))
        assert values, f"names no key: {sentence}"
        self.refusals.setdefault(sentence, dict(row))
        self.known[values] = sentence
        return sentence, values

    def mended(self, row: Row, fixed: Iterable[str], most: int = 5000) -> Row | None:
        """Return an accepted row like this one, with the same values of some keys; None: there is none.

        Args:
            row: it is the better the nearer it is to an accepted one.
            fixed: these keys.
            most: rows that are looked at; more of them are an error where it is the default.
        """
        fixed, seen = set(fixed), set()
        heap = [(0, 0, dict(row))]  # by the number of refusals that are known to hold
        while heap:
            _, _, current = heapq.heappop(heap)
            if (state := tuple(current.values())) in seen:
                continue
            seen.add(state)
            if len(seen) > most:
                assert most < 5000, f"the refusals of {row} lead in circles"
                return None
            if (refused := self.refused(current)) is None:
                return current
            free = sorted(key for key, _ in refused[1] if key not in fixed)
            for key in free:
                for value in self.axes[key]:
                    if value != current[key]:
                        other = {**current, key: value}
                        faults = sum(values <= other.items() for values in self.known)
                        heapq.heappush(heap, (faults, next(self.count), other))
        return None

    def completed(self, some: Row, left: Container[Pair] = ()) -> Row | None:
        """Return an accepted row with some values; None: there is none.

        Args:
            some: the values.
            left: pairs of which it is to have as many as it can.
        """
        fixed = self.only | set(some)
        near = self.mended(self._filled(some, left), fixed, 200)
        return near or self.mended({**self.base, **some}, fixed)

    def bar(self) -> None:
        """Take out values that no accepted row has."""
        for key, values in self.axes.items():
            for value in list(values):
                if self.mended({**self.base, key: value}, self.only | {key}) is None:
                    self.apart.add(frozenset({(key, value)}))
                    values.remove(value)

    def valuewise(self) -> list[Row]:
        """Return accepted rows: every value that any accepted row has is in one of them."""
        self.bar()
        rows = []
        left = {(key, value): None for key, values in self.axes.items() for value in values}
        while left:
            first = next(iter(left))
            near = {key: [value for value in values if (key, value) in left] for key, values in self.axes.items()}
            row = {key: (values or self.axes[key])[0] for key, values in near.items()} | dict([first])
            fixed = self.only | {first[0]}
            accepted = self.mended(row, fixed, 200) or self.mended({**self.base, first[0]: first[1]}, fixed)
            assert accepted is not None  # `bar` has found one
            rows.append(accepted)
            for value in accepted.items():
                left.pop(value, None)
        return rows

    def pairwise(self) -> list[Row]:
        """Return accepted rows: every pair of values that any accepted row has is in one of them."""
        self.bar()
        rows = []
        keys = combinations(self.axes, 2)
        pairs = (((one, a), (other, b)) for one, other in keys for a in self.axes[one] for b in self.axes[other])
        left = {frozenset(pair): None for pair in pairs}
        while left:
            pair = next(iter(left))
            row = self.completed(dict(pair), left)
            if row is None:
                self.apart.add(pair)
                del left[pair]
                continue
            rows.append(row)
            for two in combinations(row.items(), 2):
                left.pop(frozenset(two), None)
        for pair in [pair for pair in self.apart if len(pair) == 2]:  # a third key may let them fit
            tries = ({**row, **dict(pair)} for row in self.random.sample(rows, min(12, len(rows))))
            if (row := next((each for each in tries if self.refusal(each) is None), None)) is not None:
                self.apart.remove(pair)
                rows.append(row)
        return rows

    def product(self, keys: Sequence[str]) -> Iterator[Row]:
        """Yield an accepted row for each combination of the values of some keys that any has, the others by chance."""
        self.bar()
        for values in product(*(self.axes[key] for key in keys)):
            row = self.completed(dict(zip(keys, values, strict=True)))
            if row is not None:
                yield row

    def _filled(self, some: Row, left: Container[Pair]) -> Row:
        """Return a row with some values, the others such that they make up as many pairs of those left as possible."""
        row = dict(some)
        keys = [key for key in self.axes if key not in row]
        self.random.shuffle(keys)
        for key in keys:
            values = self.random.sample(self.axes[key], len(self.axes[key]))
            row[key] = max(values, key=lambda value: sum(frozenset({(key, value), had}) in left for had in row.items()))
        return {key: row[key] for key in self.axes}
