"""The quantisers of vector-quantize-pytorch, by name, behind one interface."""

from darkroom.params import Section
from darkroom.schemas.tokenizers import quantisers as sections
from darkroom.tokenizers.codebooks import AveragedCodebook, LinearCodebook
from darkroom.tokenizers.implicit_codebooks import Rounded, Signs
from darkroom.tokenizers.quantiser import Quantiser

SECTIONS: dict[str, type[Section]] = {
    "vq": sections.VQ,
    "simvq": sections.SimVQ,
    "lfq": sections.Binary,
    "bsq": sections.Binary,
    "fsq": sections.FSQ,
}


def build_quantiser(name: str, size: int, channels: int, settings: Section) -> Quantiser:
    """Return a quantiser.

    Args:
        name: vq, simvq, lfq, bsq or fsq.
        size: codes, K.
        channels: of the latents, of vq and simvq; the others' follow from the codes.
        settings: the section of the quantiser.
    """
    if isinstance(settings, sections.VQ):
        return AveragedCodebook(size, channels, settings)
    if isinstance(settings, sections.SimVQ):
        return LinearCodebook(size, channels, settings)
    if isinstance(settings, sections.FSQ):
        return Rounded(settings)
    assert isinstance(settings, sections.Binary)
    return Signs(size, settings, spherical=name == "bsq")
