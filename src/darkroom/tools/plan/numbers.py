"""Numbers as a person reads them."""


def count_of(count: float) -> str:
    """Return a large number with the letter of its thousands: 1.3 M."""
    for letter, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {letter}"
    return f"{count:.0f}"


def time_of(seconds: float) -> str:
    """Return seconds as a person says them: 45 s, 1 min 20 s, 3 h 10 min, 4 d 2 h."""
    whole = round(seconds)
    for (unit, size), (below, part) in (
        (("d", 86400), ("h", 3600)),
        (("h", 3600), ("min", 60)),
        (("min", 60), ("s", 1)),
    ):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part} {below}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
