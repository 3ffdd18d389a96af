"""The options of `darkroom export`. Does not import torch."""

from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from darkroom.tools import command


@command("Sample", "export", "Export the generator or the tokenizer for other programs.")
def export_model(
    model: Annotated[Literal["generator", "tokenizer"], Option(help="the model")] = "generator",
    out: Annotated[Path, Option(metavar="DIR", help="a new folder to write")] = Path("export"),
    form: Annotated[Literal["diffusers", "pt", "safetensors"], Option("--format", help="weight format")] = "diffusers",
    weights: Annotated[Literal["ema", "raw"], Option(help="averaged or raw weights")] = "ema",
) -> str:
    """Export the model and return a line for the terminal. Raises the errors of `export` and `export_tokenizer`."""
    from darkroom.tools.export.command import export, export_tokenizer

    if model == "tokenizer":
        return export_tokenizer(out, form)
    return export(out, form, weights)
