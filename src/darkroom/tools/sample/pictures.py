"""Sample the images of `darkroom sample`, and make their grid."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from darkroom.artifacts.manifest import ArtifactError
from darkroom.artifacts.models import CLIP_FOLDER
from darkroom.data.grid import blank
from darkroom.data.images import ImageSpec
from darkroom.device import set_up_device
from darkroom.models.clip.load import load_clip
from darkroom.models.clip.network import Clip
from darkroom.models.decoder.cascade import Decoder
from darkroom.models.decoder.sample import SampleRequest
from darkroom.models.decoder.variations import filling
from darkroom.models.prior.settings import SampleParams
from darkroom.stages.decoding import open_decoder
from darkroom.stages.sample_text import open_imagination
from darkroom.tools.bands import Named
from darkroom.tools.images import preparation, read_image

_BATCH = 8  # images in a forward pass; the padded batch of a stage takes long for few images
_WHITE = 128  # grey levels from which a mask is white
_RESAMPLES = 5  # of in-painting, as published


def pictures(
    params: SampleParams, texts: Sequence[str], files: Sequence[str], images: int, mask: str | None = None
) -> list[Named]:
    """Return the rows of a grid: each text with its images, and each file with a row that begins with its image.

    With a `mask`, an image file, the images of the files are kept where it is black, and inpainted where it is white.

    Image k of a text is a function of the text, the seed and k, bit for bit, independent of the other requests.

    Raises:
        DarkroomError: a text is too long, a file cannot be read, or models do not fit each other.
    """
    decoding = params.sample_decoder.model_copy(update={"batch": _BATCH, "seed": params.sample_text.seed})
    prior = params.sample_text.prior.model_copy(update={"batch": _BATCH})
    texts_of = params.sample_text.model_copy(update={"prior": prior})
    small = params.model_copy(update={"sample_decoder": decoding, "sample_text": texts_of})
    device = set_up_device(params.sample_text.threads, params.run.device)
    clip = load_clip().to(device)
    rows: list[NDArray[np.uint8]] = []
    if texts:
        rows += _of_texts(small, clip, texts, images, device)
    if files:
        file_rows = _of_files(small, clip, files, images, device, mask)
        empty = blank(file_rows[0][:1].shape)
        rows = [*(np.concatenate([empty, row]) for row in rows), *file_rows]
    return list(zip([*texts, *(Path(file).name for file in files)], rows, strict=True))


def _of_texts(
    params: SampleParams, clip: Clip, texts: Sequence[str], images: int, device: torch.device
) -> list[NDArray[np.uint8]]:
    """Return images of each text, uint8 (images, C, H, W)."""
    text, words = clip.texts(list(texts))
    imagination = open_imagination(params, device, clip.fingerprint, str(CLIP_FOLDER))
    if imagination.decoder.cascade.low_size is not None:
        raise ArtifactError(
            "the first trained U-Net of models/decoder is an up-sampler, which needs a low-resolution image, not "
            "only a text: also train one without `low_size` in `train_decoder.unets`."
        )
    each = torch.arange(len(texts)).repeat_interleave(images)
    batches = imagination.images(text.cpu()[each], words.cpu()[each], list(range(images)) * len(texts))
    return np.split(torch.cat(list(batches)).numpy(), len(texts))


def _of_files(
    params: SampleParams, clip: Clip, files: Sequence[str], images: int, device: torch.device, mask: str | None
) -> list[NDArray[np.uint8]]:
    """Return each file's image, then images of its embedding, uint8 (1 + images, C, H, W).

    With a mask: the image of the file, grey where the mask is white, then its inpainted versions.
    """
    names, seed = list(params.train_decoder.unets), params.sample_text.seed
    decoder = open_decoder(params.sample_decoder, names, seed, device)
    decoder.cascade.require_clip(clip.fingerprint, str(CLIP_FOLDER))
    settings = preparation(ImageSpec.of(decoder.metadata))
    given = torch.from_numpy(np.stack([read_image(Path(file), settings) for file in files]))
    embeddings = torch.cat([clip.images(one[None]).cpu() for one in given])
    if decoder.cascade.normalised:
        embeddings = functional.normalize(embeddings, dim=1)
    each = torch.arange(len(files)).repeat_interleave(images)
    low = decoder.low(given)
    numbers = list(range(images)) * len(files)
    request = SampleRequest(numbers, embeddings[each], _no_text(decoder, len(each)), None if low is None else low[each])
    if mask is not None:
        grey = replace(settings, spec=replace(settings.spec, channels="L"))
        preserved = torch.from_numpy(read_image(Path(mask), grey) < _WHITE).float()  # (1, H, W)
        request = replace(request, resamples=_RESAMPLES)
        holes, request = filling(decoder, given[each], preserved.expand(len(each), -1, -1, -1), request)
        given = holes[::images]
    generated = np.split(torch.cat(list(decoder.images(request))).numpy(), len(files))
    return [np.concatenate([one[None].numpy(), row]) for one, row in zip(given, generated, strict=True)]


def _no_text(decoder: Decoder, count: int) -> Tensor | None:
    """Return zero encodings, which a U-Net reads as no text; None if the decoder has no text condition."""
    shapes = [stage.network.config.text_shape for stage in decoder.cascade.stages]
    shape = next((shape for shape in shapes if shape is not None), None)
    return None if shape is None else torch.zeros(count, *shape)
