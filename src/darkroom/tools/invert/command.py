"""`darkroom invert`: check a request before importing torch, invert the images, and write the results."""

from pathlib import Path

from darkroom.artifacts.models import generator_manifest
from darkroom.check.check import validated
from darkroom.environment import choose_device, set_threads
from darkroom.models.generators.kind_settings import READ
from darkroom.params.section import PARAMS
from darkroom.params.stage import read_yaml
from darkroom.tools.invert.request import Request
from darkroom.tools.places import require_no_output
from darkroom.tools.sample.classes import MODEL, Overrides, settings_of
from darkroom.tools.sample.command import grid_path, require_models

PLACE = Path("logs/invert")


def invert(request: Request) -> str:
    """Invert images, write a grid, a table and the noise, and return the table for the terminal.

    `request` contains the options of the command line, see `darkroom invert --help`.

    Raises:
        DarkroomError: a value does not fit, a model or an image is missing, or the generator cannot be inverted.
    """
    require_models(["tokenizer", "generator"])
    sections, run, _ = settings_of(Overrides(weights=request.weights, guidance=request.guidance))
    target = grid_path([request.split], [], f"{request.guidance:g}", request.out, PLACE)
    others = [target.with_suffix(ending) for ending in (".tsv", ".safetensors")]
    for path in others:
        require_no_output(f"--out {request.out}", path)
    manifest = generator_manifest(MODEL)
    if manifest.get("condition") in READ:
        require_models(["clip"])
    latents = validated(read_yaml(PARAMS)).encode_latents
    set_threads(sections.common.threads)
    choose_device(run.device)
    from darkroom.artifacts.atomic import write_bytes
    from darkroom.data.grid import save_png
    from darkroom.tools.invert.inverting import inverted

    results = inverted(request, manifest, sections, run, latents)
    save_png(target, results.picture)
    write_bytes(others[0], results.tsv.encode())
    write_bytes(others[1], results.noise)
    return f"{results.table}\n{target}, {others[0].name}, {others[1].name}"
