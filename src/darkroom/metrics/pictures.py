"""Originals, their reconstructions and the error, as a person compares them."""

import numpy as np
from numpy.typing import NDArray

Images = NDArray[np.uint8]

BRIGHTER = 4  # times: an error of 64 grey levels is white, and one that nobody sees in the images can be seen


def error(originals: Images, decoded: Images) -> Images:
    """Return min(255, 4 |decoded - original|), uint8 (N, C, H, W); of RGBA images, of the colours, opaque."""
    difference = np.abs(decoded.astype(np.int16) - originals.astype(np.int16))
    shown = np.minimum(255, BRIGHTER * difference).astype(np.uint8)
    if shown.shape[1] == 4:
        shown[:, 3] = 255
    return shown


def rows(originals: Images, decoded: Images, columns: int) -> Images:
    """Return images row by row: `columns` originals, below them their reconstructions, their errors, and so on."""
    found: list[Images] = []
    for at in range(0, len(originals), columns):
        one, other = originals[at : at + columns], decoded[at : at + columns]
        found += [one, other, error(one, other)]
    return np.concatenate(found)
