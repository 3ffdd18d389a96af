"""Fingerprints of the code of each stage: hashes of its syntax trees without comments, docstrings and layout."""
