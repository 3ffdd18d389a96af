"""Read a user's image files, prepared in the same way as the training images."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from darkroom.artifacts.manifest import read_manifest
from darkroom.data.catalog import load_catalog
from darkroom.data.damage import DamageError
from darkroom.data.decoding import open_image
from darkroom.data.images import ImageSpec, to_array
from darkroom.data.layout import KIND, SHARDS
from darkroom.data.preparing import Preparation, prepare
from darkroom.errors import DarkroomError


def preparation(spec: ImageSpec) -> Preparation:
    """Return the preparation of the first part by `ingest`, for another size; random crops become center crops.

    Raises:
        ArtifactError: the catalog or all parts are missing.
    """
    part = next(iter(load_catalog(shards=None).parts))
    settings = Preparation.of(read_manifest(SHARDS / part, KIND))
    return replace(settings, spec=spec, crop="center" if settings.crop == "random" else settings.crop)


def read_image(path: Path, settings: Preparation) -> NDArray[np.uint8]:
    """Return the prepared image of a file, uint8 (C, H, W).

    Raises:
        DarkroomError: the file cannot be read, or its image cannot be prepared.
    """
    try:
        return to_array(prepare(open_image(path.read_bytes(), settings.max_pixels), settings, path.stem))
    except OSError as error:
        raise DarkroomError(f"cannot read {path}: {error.strerror}.") from error
    except DamageError as error:
        raise DarkroomError(f"cannot read {path} as an image: {error}.") from error
