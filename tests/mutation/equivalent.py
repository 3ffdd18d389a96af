"""Mutants that compute the same, each with the reason: path and change, as `python -m mutation --list` prints them."""

EQUIVALENT: dict[tuple[str, str], str] = {}
