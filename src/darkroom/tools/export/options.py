"""The options of `darkroom export`. Loads no torch."""

from pathlib import Path
from typing import Annotated, Literal

from typer import Option


def command(
    model: Annotated[Literal["generator", "tokenizer"], Option(help="the model")] = "generator",
    out: Annotated[Path, Option(metavar="DIR", help="a new folder")] = Path("export"),
    form: Annotated[Literal["diffusers", "pt", "safetensors"], Option("--format", help="of the weights")] = "diffusers",
    weights: Annotated[Literal["ema", "raw"], Option(help="of the generator")] = "ema",
) -> str:
    """Return a line that says what was written. Raises as `export` and `export_tokenizer`."""
    from darkroom.tools.export.command import export, export_tokenizer

    if model == "tokenizer":
        return export_tokenizer(out, form)
    return export(out, form, weights)
