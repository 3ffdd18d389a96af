"""Measure the size of the tree: lines, keys, import cycles, and files of a training step and of a sample.

    python workflow/lint/house.py           # sizes and import cycles
    python workflow/lint/house.py --trace   # also runs one optimizer step and one sampler call of a DiT

Fails above LIMITS. A change that needs more raises a limit here, where a reviewer sees it.
"""

import ast
import io
import re
import sys
import tempfile
import tokenize
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
LIMITS = {
    "lines of src": 52_350,
    "lines of code": 33_695,
    "files": 408,
    "lines of the longest file": 400,
    "import cycles": 0,
    "keys of params.yaml": 711,
    "files of an optimizer step": 12,
    "files of a sampler call": 10,
}
_LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
_DATA = ("training/loader.py", "training/loop.py", "training/stage.py", "stages/", "data/", "models/generators/data.py")


def code_lines(text: str) -> int:
    """Return the number of lines of a module that hold code: not blank, no comment, no docstring."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def sizes() -> dict[str, int]:
    """Return the sizes of src, by the names of their limits."""
    texts = [path.read_text() for path in sorted(SRC.rglob("*.py"))]
    return {
        "lines of src": sum(text.count("\n") for text in texts),
        "lines of code": sum(code_lines(text) for text in texts),
        "files": len(texts),
        "lines of the longest file": max(text.count("\n") for text in texts),
    }


def params_keys() -> int:
    """Return the number of keys that hold a value, by docs/reference/params.md; those of all trainings count once."""
    rows = re.findall(r"^\| `([\w.*]+)` \| [^ |]", (ROOT / "docs/reference/params.md").read_text(), re.MULTILINE)
    return sum(".training" not in key or ".training.init." in key for key in rows)


def cycles() -> list[list[str]]:
    """Return the groups of modules that import each other, also inside functions and for type checkers alone."""
    import grimp
    import networkx

    graph = grimp.build_graph("darkroom", cache_dir=None)
    imports = networkx.DiGraph(
        (module, other) for module in graph.modules for other in graph.find_modules_directly_imported_by(module)
    )
    return [sorted(group) for group in networkx.strongly_connected_components(imports) if len(group) > 1]


def executed(call: Callable[[], Any]) -> list[str]:
    """Return the files of the package that a call executes, without stage, loop, loader and data set."""
    files: set[str] = set()

    def watch(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            files.add(frame.f_code.co_filename)

    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    package = SRC / "darkroom"
    names = sorted(Path(file).relative_to(package).as_posix() for file in files if Path(file).is_relative_to(package))
    return [name for name in names if not name.startswith(_DATA)]


def traces() -> dict[str, list[str]]:
    """Return the files of one optimizer step and one sampler call of the DiT of params.yaml, on classes, with AdamW."""
    import numpy as np
    import torch

    from darkroom.device import set_up_device
    from darkroom.diffusion.scalers import LatentScaler
    from darkroom.models.generators.dit.network import DiT
    from darkroom.models.generators.dit.recipe import DiTRecipe, config_of
    from darkroom.models.generators.settings import Params
    from darkroom.params.section import NO_FILE, validate
    from darkroom.params.stage import stage_params
    from darkroom.training.loop import remaining_batches
    from darkroom.training.start import OutputPaths, open_training

    values = stage_params("train_generator")
    values["train_generator"] |= {"captions": NO_FILE}
    values["train_generator"]["dit"]["model"]["condition"] = "class"
    values["train_generator"]["training"]["optimizer"] = "adamw"
    params: Any = validate(Params, values)
    settings, training = params.train_generator.dit, params.train_generator.own_training
    shape, classes = (4, 4, 4), 10

    class Latents:
        """Random latents of ten classes."""

        def __len__(self) -> int:
            return 4 * training.batch

        def __getitems__(self, rows: Any, positions: Any = None) -> dict[str, Any]:
            mean = np.random.default_rng(0).normal(size=(len(rows), *shape)).astype(np.float32)
            return {"mean": mean, "logvar": mean - 4, "labels": np.array(rows) % classes}

        def keys(self, rows: Any) -> list[str]:
            return [str(row) for row in rows]

    class Decoder:
        """A tokenizer that shows the sign of a latent."""

        latent_shape = shape

        def decode(self, latents: torch.Tensor) -> torch.Tensor:
            return (latents > 0).to(torch.uint8)

    device = set_up_device(1, "cpu")
    rows: Any = Latents()
    model = DiT(config_of(settings, shape[0], shape[1], classes))
    scaler, tokenizer = LatentScaler([0.0] * shape[0], [1.0] * shape[0]), Decoder()
    recipe = DiTRecipe(model, settings.diffusion, 0, rows, rows, scaler, tokenizer, settings.sampling)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as folder:
        state = open_training(recipe, training, params.run, OutputPaths(*(Path(folder) / name for name in "abc")))
        batches = remaining_batches(state)
        state.step(next(batches))  # the first one builds what later ones use
        batch = next(batches)
        step = executed(lambda: state.step(batch))
    labels = torch.arange(4, device=device)
    sampler = recipe.sampler
    sample = executed(lambda: sampler(range(4), labels, 0, settings.sampling))
    return {"files of an optimizer step": step, "files of a sampler call": sample}


def main(trace: bool) -> int:
    """Print each number with its limit; return 1 if one is above it."""
    sys.path.insert(0, str(SRC))
    measured = sizes() | {"keys of params.yaml": params_keys()}
    groups = cycles()
    for group in groups:
        print(f"an import cycle: {', '.join(group)}")
    measured["import cycles"] = len(groups)
    for name, files in (traces() if trace else {}).items():
        print(f"{name}: {', '.join(files)}")
        measured[name] = len(files)
    for name, value in measured.items():
        print(f"{name}: {value:,} of at most {LIMITS[name]:,}")
    return int(any(value > LIMITS[name] for name, value in measured.items()))


if __name__ == "__main__":
    sys.exit(main("--trace" in sys.argv))
