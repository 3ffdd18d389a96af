"""A stage as somebody would add it: its body, its settings, a line of `STAGES`, and two sections of YAML."""

import json
from pathlib import Path

from darkroom.artifacts.atomic import atomic_folder, require_writable
from darkroom.data.reader import ImageShards
from darkroom.params.count_labels import Params

OUT = Path("samples/labels")


def run(params: Params) -> None:
    """Write how many images each label has."""
    require_writable(OUT)
    labels = ImageShards.open_parts(params.count_labels.parts, params.count_labels.split).labels
    with atomic_folder(OUT) as folder:
        (folder / "labels.json").write_text(json.dumps({label: labels.count(label) for label in sorted(set(labels))}))
