"""Score images as in `scoring`, and also compare each with its original and its caption."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from darkroom.artifacts.manifest import ArtifactError, manifest_hash, read_manifest
from darkroom.artifacts.models import CLIP, SCENE_READER
from darkroom.data.catalog import load_catalog
from darkroom.data.draw import original_rows
from darkroom.data.reader import ImageShards
from darkroom.data.scenes.attributes import require_scenes, rightness
from darkroom.data.scenes.captions import Description
from darkroom.metrics.batches import batched
from darkroom.metrics.image import Measure, image_scores, psnr
from darkroom.metrics.measure import Measurement
from darkroom.metrics.uncertainty import mean_and_error
from darkroom.models.clip.load import open_clip
from darkroom.models.clip.network import Clip
from darkroom.models.decoder.settings import Evaluators
from darkroom.models.evaluators.pairs import clip_scores, perceptual_measure, text_embeddings
from darkroom.models.evaluators.scene_reader import SceneReader, open_scene_reader, things_in
from darkroom.models.generators.sample_settings import Networks, ScoreGenerator
from darkroom.params.section import NO_FILE
from darkroom.stages.diversity import Vgg16
from darkroom.stages.scoring import Paths, score
from darkroom.terminal.terminal import with_progress

VGG16 = "score_decoder.vgg16"
MODEL, READER = Path("models/clip"), Path("models/scene_reader")


@dataclass(frozen=True)
class Pairs:
    """Samples with the rows of their originals, the batch size, and the device."""

    samples: ImageShards
    originals: ImageShards
    rows: Sequence[int]
    batch: int
    device: torch.device

    def generated(self, work: str) -> Iterator[NDArray[np.uint8]]:
        """Yield the samples, uint8 (n, C, H, W); `work` is the label of the progress line."""
        return with_progress(self.samples.batches(self.batch), len(self.samples), work)

    def real(self, work: str) -> Iterator[NDArray[np.uint8]]:
        """Yield the original of each sample in the same way."""
        groups = (self.rows[at : at + self.batch] for at in range(0, len(self.rows), self.batch))
        return with_progress((self.originals.__getitems__(group) for group in groups), len(self.rows), work)


def _distances(pairs: Pairs, measures: Mapping[str, Measure]) -> dict[str, float]:
    groups = zip(pairs.real("originals"), pairs.generated("distances"), strict=True)
    return image_scores(((torch.from_numpy(real), torch.from_numpy(generated)) for real, generated in groups), measures)


def _captions(pairs: Pairs, where: Path) -> list[str] | None:
    captions = [caption for caption in pairs.samples.captions if caption is not None]
    if captions and len(captions) < len(pairs.samples):
        key = pairs.samples.keys[pairs.samples.captions.index(None)]
        raise ArtifactError(
            f"{where}: {key} has no caption, but others have one: set `ingest.rules.caption_missing` to quarantine, or "
            "disable CLIP similarities (`score_decoder.clip: data/none`)."
        )
    return captions or None


def _clip(path: str) -> Clip | None:
    """Return the CLIP of `score_decoder.clip`; None if none is set, or if `train_clip` made none."""
    if path == NO_FILE or (Path(path) == MODEL and read_manifest(MODEL, CLIP)["weights"] is None):
        return None
    return open_clip(Path(path), "score_decoder.clip")


def _similarities(pairs: Pairs, clip: Clip, captions: list[str] | None, condition: str | None) -> Measurement:
    """Return CLIP's similarities; `condition` is the identity of the CLIP whose embeddings the samples were made of."""
    clip = clip.to(pairs.device)
    generated, real = (
        torch.cat(list(batched(clip.images, images, pairs.batch, pairs.device)))
        for images in (pairs.generated("CLIP"), pairs.real("CLIP, originals"))
    )
    texts = None if captions is None else text_embeddings(lambda group: clip.texts(group)[0], captions, pairs.batch)
    scores, unrelated = clip_scores(real, generated, texts)
    conditioned = clip.fingerprint == condition
    notes = ["clip_text is left out: the images have no captions"] if texts is None else []
    if conditioned:
        notes.append("clip_image and clip_text: by the CLIP that conditioned the samples, which flatters them")
    protocol = {"clip": clip.fingerprint, "clip_is_condition": conditioned}
    return Measurement(scores, protocol, notes, {"clip_unrelated": unrelated})


def _attributes(pairs: Pairs, reader: SceneReader, expected: Sequence[Description]) -> Measurement:
    """Return the fraction of samples that are as captioned, and of the originals, as the classifier sees them."""

    def right(images: Iterator[NDArray[np.uint8]]) -> dict[str, list[float]]:
        things = (each for group in things_in(reader, images, pairs.batch, pairs.device) for each in group)
        return rightness(expected, things)

    samples, originals = right(pairs.generated("attributes")), right(pairs.real("attributes, originals"))
    scores: dict[str, float] = {}
    for name, values in samples.items():
        scores |= mean_and_error(name, values)
    real = {name: fmean(values) for name, values in originals.items()}
    baseline = {"originals": real, "renders": read_manifest(READER, SCENE_READER)["accuracy"]}
    protocol = {"scene_reader": {"id": manifest_hash(READER), "n": len(expected)}}
    return Measurement(scores, protocol, [], {"scene_reader": baseline})


def measure_pairs(
    judges: Evaluators, batch: int, where: Path, samples: ImageShards, manifest: Mapping[str, Any], device: torch.device
) -> Measurement:
    """Return the scores of each sample against its original and its caption; first opens all evaluators."""
    originals = ImageShards.open_parts(list(load_catalog().parts), manifest["split"])
    pairs = Pairs(
        samples, originals, original_rows(samples, originals, manifest.get("repeats", {}), where), batch, device
    )
    protocol: dict[str, Any] = {}
    measures: dict[str, Measure] = {"psnr": psnr}
    if judges.lpips == "lpips":
        weights, shape = Path(judges.vgg16), samples.image_shape
        measures["lpips"], protocol["lpips"] = perceptual_measure(weights, shape, VGG16, device)
    clip = _clip(judges.clip)
    captions = None if clip is None else _captions(pairs, where)
    reader, expected = None, []
    if judges.attributes == "scenes":
        reader = open_scene_reader(READER, samples.image_shape)
        expected = require_scenes(samples.keys, samples.captions, read_manifest(READER, "scene_reader")["kinds"])
    results = Measurement(_distances(pairs, measures), protocol)
    if clip is not None:
        results |= _similarities(pairs, clip, captions, manifest.get("clip"))
    return results if reader is None else results | _attributes(pairs, reader, expected)


def score_pairs(paths: Paths, settings: ScoreGenerator, judges: Evaluators, networks: Networks, device: str) -> None:
    """Score samples, also against their originals and captions, and write how they were scored."""
    lpips = Vgg16(Path(judges.vgg16), VGG16) if judges.lpips == "lpips" else None
    score(paths, settings, networks, device, lpips, partial(measure_pairs, judges, settings.batch, paths[0]))
