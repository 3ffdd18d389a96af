"""Grids with captions."""

import numpy as np

from darkroom.data.grid import captioned_grid


def drawn(*captions: str) -> bytes:
    groups = [np.zeros((1, 3, 40, 40), np.uint8)] * len(captions)
    return captioned_grid(groups, captions, columns=2).tobytes()


def test_letters_with_accents_are_drawn_without_them_and_others_stay():
    assert drawn("t\u00fcrkiye", "S\u00e3o Tom\u00e9") == drawn("turkiye", "Sao Tome")
    assert drawn("u\u0308ber") == drawn("uber")  # as macOS writes it
    assert drawn("woman\u2019s \u201ccup\u201d \u2013 \u00bd") == drawn('woman\'s "cup" - 1/2')
    assert drawn("\u56f3") != drawn("") and drawn("red heart") != drawn("red hear")
