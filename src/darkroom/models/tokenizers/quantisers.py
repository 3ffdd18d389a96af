"""The quantisers of vector-quantize-pytorch, by name, behind one interface."""

from darkroom.models.tokenizers import quantiser_settings as sections
from darkroom.models.tokenizers.codebooks import AveragedCodebook, LinearCodebook
from darkroom.models.tokenizers.implicit_codebooks import Rounded, Signs
from darkroom.models.tokenizers.quantiser import Quantiser
from darkroom.params.section import Section

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
