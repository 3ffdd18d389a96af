"""docs/params.md: the reference of params.yaml, made from the settings classes."""

from itertools import groupby
from pathlib import Path

from darkroom.artifacts.atomic import write_bytes
from darkroom.check.check import whole
from darkroom.dag.stages import TRAININGS
from darkroom.errors import DarkroomError
from darkroom.params.training import Training
from darkroom.tools.editing import shown
from darkroom.tools.params.keys import REQUIRED, Key, keys

PAGE = Path("docs/params.md")
_SHARED = {key.name: key.default for key in keys(Training)}
_HEAD = """# Parameters

Every key of params.yaml, made by `darkroom params --write` from the settings classes. `*` stands for the name of a
part or of a U-Net. `darkroom params` prints the same with your values; `darkroom params KEY` how an experiment sets it.

A key that does not stand in params.yaml has its default. To set one, add it below its section, or for one experiment
write `++`: `dvc exp run -S '++train_tokenizer.vqgan.width=64'`. Without `++`, DVC answers "Could not override".

A training takes each of its keys from the narrowest place that has it: the `training` of its kind of tokenizer or
generator, or of its U-Net; that of its stage; the section `training`; the default of its stage. All keys are listed
once, under `training`, and again with a stage where its default is another. The defaults are for some thousand colour
pictures of 32 pixels; params.yaml holds what the digits have otherwise.
"""


def page() -> str:
    """Return the page: a table for each section."""
    parts = [_HEAD]
    for section, held in groupby(keys(whole()), key=lambda key: key.name.partition(".")[0]):
        heading, *rows = held
        parts.append(f"\n## {section}\n\n{heading.description}\n")
        if rows:
            parts.append("\n| key | default | values | |\n|---|---|---|---|\n")
            parts.append("".join(_row(key) for key in rows if _is_listed(key)))
    return "".join(parts)


def _is_listed(key: Key) -> bool:
    """Return whether a key says anything that the section `training` does not: of `init`, the first stage's does."""
    stage, _, own = key.name.partition(".training.")
    if not own or stage not in TRAININGS:
        return True
    return stage == TRAININGS[0] if own.startswith("init") else key.default != _SHARED[own]


def _row(key: Key) -> str:
    required = "by stage" if key.name.startswith("training.") else "required"
    default = "" if key.is_section else required if key.default is REQUIRED else f"`{shown(key.default)}`"
    cells = [f"`{key.name}`", default, key.allowed, key.description]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def write_page(write: bool) -> str:
    """Write docs/params.md, or check that it is up to date; return a line for the person.

    Raises:
        DarkroomError: it is missing or another.
    """
    text = page().encode()
    if write:
        write_bytes(PAGE, text)
    elif not PAGE.is_file() or PAGE.read_bytes() != text:
        raise DarkroomError(
            f"{PAGE} is not what the settings classes say: run `darkroom params --write` and commit it."
        )
    return f"{PAGE} describes every key of params.yaml."
