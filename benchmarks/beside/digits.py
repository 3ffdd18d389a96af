"""The parameters of the preset `digits`, whatever params.yaml says."""

from typing import Any

from darkroom.params.section import PARAMS
from darkroom.params.stage import DVC, cut, read_yaml
from darkroom.params.yaml_text import parse_yaml
from darkroom.tools.editing import laid_over
from darkroom.tools.preset import overlay


def digits(stage: str) -> dict[str, Any]:
    """Return what dvc.yaml gives to a stage, in a clone, as nested mappings."""
    text = laid_over(PARAMS.read_text(), overlay("digits"))
    return cut(stage, None, parse_yaml(text, PARAMS), read_yaml(DVC))
