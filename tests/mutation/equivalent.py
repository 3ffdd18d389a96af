"""Mutants that compute the same, each with the reason: path and change, as `python -m mutation --list` prints them."""

EQUIVALENT = {
    ("src/darkroom/training/journal.py", "self._file.close()  ->  pass"): (
        "each record is flushed when it is written, and the file closes with the journal"
    ),
}
