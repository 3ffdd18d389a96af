"""Read the inputs of the page."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from darkroom.artifacts.manifest import read_manifest
from darkroom.report.copies import Nearest, read_nearest
from darkroom.report.curves import CURVES, Training, read_training
from darkroom.report.decoder import Conditioned, PriorScored, read_conditioned, read_prior
from darkroom.report.metadata import Catalog, Reconstructions, Reference, Samples, typed
from darkroom.report.pictures import Picture, SampleEvolution, read_png, read_sample_evolution, read_svg
from darkroom.report.scores import ClipScored, Scored, read_clip, read_scored

CATALOG, REFERENCE = Path("data/catalog"), Path("data/reference")
SAMPLES, RECONSTRUCTIONS = Path("samples/generator"), Path("samples/reconstructions")
PICTURES = Path("samples/catalog")
DAG, GRID = Path("docs/dag.svg"), "grid.png"
TRAININGS = ("teacher", "tokenizer", "extractor", "generator", "clip")
GENERATED = ("generator", "tokenizer", "decoder", "text")
FURTHER = ("prior", "scene_reader", "classifier", "distilled")  # after the U-Nets


@dataclass(frozen=True)
class Inputs:
    """All inputs of the page; optional ones are None.

    generator, sample_grid: None if there is no generator; `samples` gives the reason.
    own: images that the tokenizer generated.
    decoder, text: images sampled from embeddings, and from captions.
    nearest: for each set of generated images, the nearest training images, by the name of its folder.
    evolutions: the same images at points of a training, by the name of its curves.
    """

    catalog: Catalog
    reference: Reference
    samples: Samples
    reconstructions: Reconstructions
    generator: Scored | None
    tokenizer: Scored
    own: Conditioned | None
    clip: ClipScored | None
    decoder: Conditioned | None
    text: Conditioned | None
    prior: PriorScored | None
    trainings: tuple[Training, ...]
    sample_grid: Picture | None
    reconstruction_grid: Picture
    nearest: dict[str, Nearest]
    evolutions: dict[str, SampleEvolution]
    data_grid: Picture
    dag: Markup


def read_inputs(unets: Sequence[str] = ()) -> Inputs:
    """Return the inputs of the page, read from the root of the clone; `unets`: the names of the decoder's U-Nets.

    Raises:
        ArtifactError: a file is missing or damaged; the message names the file.
    """
    samples = typed(Samples, read_manifest(SAMPLES, "samples"), SAMPLES)
    catalog = typed(Catalog, read_manifest(CATALOG, "catalog"), CATALOG)
    cascade = [f"decoder/{unet}" for unet in unets]
    drawing = ("generator", "distilled", "tokenizer", *cascade)
    return Inputs(
        catalog=catalog,
        reference=typed(Reference, read_manifest(REFERENCE, "reference"), REFERENCE),
        samples=samples,
        reconstructions=typed(Reconstructions, read_manifest(RECONSTRUCTIONS, "reconstructions"), RECONSTRUCTIONS),
        generator=read_scored("generator") if samples.images else None,
        tokenizer=read_scored("tokenizer"),
        own=read_conditioned("tokenizer", "tokenizer_samples"),
        clip=read_clip(),
        decoder=read_conditioned("decoder"),
        text=read_conditioned("text"),
        prior=read_prior(),
        trainings=tuple(read_training(CURVES / name) for name in (*TRAININGS, *cascade, *FURTHER)),
        sample_grid=read_png(SAMPLES / GRID) if samples.images else None,
        reconstruction_grid=read_png(RECONSTRUCTIONS / GRID),
        nearest={name: read_nearest(name) for name in GENERATED},
        evolutions={each: of for each in drawing if (of := read_sample_evolution(CURVES / each, catalog.classes))},
        data_grid=read_png(PICTURES / GRID),
        dag=read_svg(DAG),
    )
