"""Which columns of a data set of the Hub hold images, classes and captions: what settings of `hub` fit it."""

from collections.abc import Set
from pathlib import Path
from typing import Any

from darkroom.data.sources.hub import first_text
from darkroom.data.sources.hub_open import holds_texts, open_split
from darkroom.params.parts import Hub
from darkroom.tools.init.columns import LABELS, choose, column_of

_ROWS = 300  # whose texts are looked at


def hub_settings(settings: Hub, path: Path | None, own: Set[str]) -> tuple[dict[str, str | None], tuple[str, ...]]:
    """Return the columns of a split that differ from the defaults, by the keys of `hub`, and sentences on them.

    Columns whose type is that of class names are classes, whatever they are called; others are judged by their names
    and by what stands in the first rows.

    Args:
        settings: of the data set.
        path: a folder in the Hub's layout; None: the data set is on the Hub.
        own: keys that a person has set, which nothing is said of.

    Raises:
        DarkroomError: the data set cannot be opened.
    """
    stream, _, files = open_split(settings, path)
    import datasets

    features: dict[str, Any] = stream.features
    images = [name for name, feature in features.items() if isinstance(feature, datasets.Image)]
    classes = [name for name, feature in features.items() if isinstance(feature, datasets.ClassLabel)]
    texts = [name for name, feature in features.items() if holds_texts(feature) and name not in _set(settings, own)]
    rows = list(stream.select_columns(texts).take(_ROWS)) if texts else []
    table = {name: [first_text(row[name]) for row in rows] for name in texts}
    where = f"{files.name} (by its first {len(rows)} rows)"
    chosen = choose(table, where, known=bool(classes), key="hub.label")
    found = {"label": chosen.label, "caption": chosen.caption}
    notes = [*(() if "label" in own else chosen.on_label), *(() if "caption" in own else chosen.on_caption)]
    if classes and "label" not in own:
        found["label"] = column_of(classes, LABELS) or classes[0]
        others = [f"`{name}`" for name in classes if name != found["label"]]
        more = f"; {', '.join(others)} would do, too: `hub.label`" if others else ""
        notes.insert(0, f"Classes are of the column `{found['label']}` of {files.name}{more}.")
    if settings.image not in features and len(images) == 1:
        found["image"] = images[0]
    return {key: name for key, name in found.items() if key not in own and name != getattr(Hub(), key)}, tuple(notes)


def _set(settings: Hub, own: Set[str]) -> set[str | None]:
    """Return the columns that a person has named."""
    return {getattr(settings, key) for key in own & {"image", "label", "caption"}}
