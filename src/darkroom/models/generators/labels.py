"""Which class each generated image has: a function of its number, so that image i is the same of any request."""

import difflib
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from darkroom.errors import DarkroomError

Numbers = NDArray[np.int64]
ClassOf = Callable[[Numbers], Numbers]  # from the numbers of images, (N,), to the numbers of their classes, (N,)

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / the golden ratio, odd


def balanced(classes: int) -> ClassOf:
    """Return the rule by which image i has class i modulo the number of classes."""
    return lambda numbers: numbers % classes


def by_frequency(counts: Sequence[int]) -> ClassOf:
    """Return the rule by which classes are as frequent as in the training data, among any images in a row.

    Image i has the class in whose part of [0, 1) the fractional part of i / φ lies, φ the golden ratio and a part as
    long as the class is frequent. These points are evenly spread (Kuipers and Niederreiter, "Uniform distribution of
    sequences", 1974, chapter 2, section 3), so of any n images in a row a class of frequency f has n f up to a few. It
    is computed in whole numbers, the same on every machine.

    Args:
        counts: images of each class in the training data.
    """
    ends, total = np.cumsum(np.asarray(counts, dtype=np.uint64)), np.uint64(sum(counts))

    def class_of(numbers: Numbers) -> Numbers:
        points = (numbers.astype(np.uint64) * _GOLDEN) >> np.uint64(32)  # modulo 2^64: of [0, 1) in units of 2^-32
        return np.searchsorted(ends, (points * total) >> np.uint64(32), side="right")

    return class_of


def by_count(counts: Sequence[int]) -> ClassOf:
    """Return the rule by which the first images, as many as the sum, have so many of each class, evenly mixed.

    Image j of the n of a class stands where (j + 1/2) / n of the way is done, so that images in a row have the classes
    of the whole: blocks of them are what standard errors come from. Behind the last image it begins anew.
    """
    places = [(np.arange(count) + 0.5) / count for count in counts]
    classes = np.repeat(np.arange(len(counts)), counts)
    order = classes[np.lexsort((classes, np.concatenate(places)))]
    return lambda numbers: order[numbers % len(order)]


def distribution(labels: str | Mapping[str, int] | None, counts: Sequence[int] | None) -> str | Mapping[str, int]:
    """Return which distribution of classes is asked for: `labels`, or where it is None that of the training data.

    Published generators do not say how many images of each class they were trained on: then as many of each.
    """
    if labels is not None:
        return labels
    return "balanced" if counts is None else "frequency"


def class_rule(
    labels: str | Mapping[str, int], classes: Sequence[str], counts: Sequence[int] | None, key: str
) -> ClassOf:
    """Return which class each image has.

    Args:
        labels: `balanced`, `frequency`, or numbers of images by the name of their class.
        classes: the names of the classes.
        counts: images of each class in the training data, where they are known.
        key: of params.yaml that `labels` stands under, for messages.

    Raises:
        DarkroomError: there is no class of a name, or frequencies are wanted and not known.
    """
    if labels == "balanced":
        return balanced(len(classes))
    if labels == "frequency":
        if counts is None:
            raise DarkroomError(
                f"`{key}` is frequency, and models/generator does not say how many images of each class it was trained "
                f"on: train it again (`dvc repro train_generator`), or set `{key}` to balanced."
            )
        return by_frequency(counts)
    assert not isinstance(labels, str)  # the settings allow no other
    counts_of = [0] * len(classes)
    for name, count in labels.items():
        counts_of[class_number(name, classes, f"`{key}` names")] += count
    return by_count(counts_of)


def class_number(name: str, classes: Sequence[str], who: str) -> int:
    """Return the number of a class.

    Args:
        name: of the class, or its number where none has that name.
        classes: the names of all.
        who: gives the name, for the message.

    Raises:
        DarkroomError: there is no such class, and the message names the nearest; or several classes have this name.
    """
    if name in classes:
        numbers = [number for number, each in enumerate(classes) if each == name]
        if len(numbers) > 1:
            raise DarkroomError(
                f"{who} the class `{name}`, and {len(numbers)} classes are called so: give one of their numbers, "
                f"{', '.join(map(str, numbers))}."
            )
        return numbers[0]
    if name.isdecimal() and str(int(name)) == name and int(name) < len(classes):
        return int(name)
    near = difflib.get_close_matches(name, classes, n=3)
    if near:
        hint = f"did you mean {' or '.join(f'`{each}`' for each in near)}?"
    else:
        hint = f"the {len(classes)} classes are {', '.join(classes[:10])}{', …' if len(classes) > 10 else ''}."
    raise DarkroomError(f"{who} the class `{name}`, which the generator was not trained on; {hint}")
