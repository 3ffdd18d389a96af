"""What stages that read the decoder, but do not train it, are given of `train_decoder`."""

from typing import Any

from darkroom.params.numbers import PartName
from darkroom.params.section import Section


class Names(Section):
    """Of `train_decoder`, the names of the U-Nets."""

    unets: dict[PartName, Any]
