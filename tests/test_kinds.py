"""Tables of kinds: every entry is a class, and choosing a kind imports that kind alone."""

import subprocess
import sys
from pathlib import Path

import pytest

from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.kinds import Kinds
from darkroom.models.generators.settings import TrainGenerator
from darkroom.models.kinds import GENERATORS, TOKENIZERS
from darkroom.models.tokenizers.settings import TrainTokenizer
from models.tokenizers.sections import kl

TABLES = {"train_tokenizer": TOKENIZERS, "train_generator": GENERATORS}


@pytest.mark.parametrize("stage", TABLES)
def test_each_kind_that_params_can_name_has_a_line(stage: str) -> None:
    fields = {"train_tokenizer": TrainTokenizer, "train_generator": TrainGenerator}[stage].model_fields
    kinds = fields["kind"].annotation.__args__
    assert list(TABLES[stage]) == list(kinds)
    assert all(kind in fields for kind in kinds)  # its section


@pytest.mark.parametrize(
    ("table", "part", "method"),
    [
        (TOKENIZERS, "network", "from_pretrained"),
        (TOKENIZERS, "recipe", "untrained"),
        (TOKENIZERS, "sample", "__call__"),
        (GENERATORS, "recipe", "build"),
        (GENERATORS, "sampler", "open"),
    ],
)
def test_each_place_holds_what_its_part_is_for(table: Kinds, part: str, method: str) -> None:
    for kind in table:
        assert not table.has(part, kind) or callable(getattr(table.load(part, kind), method)), kind  # type: ignore[misc]


def test_a_kind_is_trained_or_imported() -> None:
    assert all(TOKENIZERS.has("recipe", kind) != TOKENIZERS.has("imported", kind) for kind in TOKENIZERS)


# Imports the stage, opens a tokenizer, and prints after each of them a line of all modules.
OPENING = """
import sys
from pathlib import Path
import darkroom.stages.train_tokenizer
print(*sys.modules)
from darkroom.models.tokenizers.protocol import load_tokenizer
load_tokenizer(Path(sys.argv[1]))
print(*sys.modules)
"""


def of_kinds(modules: str) -> set[str]:
    """Return the networks and recipes of kinds of tokenizers that are among modules."""
    found = [module.removeprefix(f"{TOKENIZERS.package}.").split(".") for module in modules.split()]
    return {".".join(names) for names in found if names[0] in TOKENIZERS and names[1:] in (["network"], ["recipe"])}


def test_the_stage_imports_no_kind_and_opening_a_tokenizer_its_own_alone(tmp_path: Path) -> None:
    from darkroom.models.tokenizers.kl.network import KLAutoencoder, build

    model = KLAutoencoder(build(kl(), 1, 8))
    model.save_pretrained(tmp_path)
    metadata = {"tokenizer_kind": "kl", "image_shape": [1, 8, 8], "latent_shape": list(model.latent_shape)}
    write_manifest(tmp_path, "tokenizer", **metadata, files=file_hashes(tmp_path))
    command = [sys.executable, "-c", OPENING, str(tmp_path)]
    found = subprocess.run(command, check=True, env={"PYTHONPATH": "src"}, capture_output=True, text=True)
    assert [of_kinds(modules) for modules in found.stdout.splitlines()] == [set(), {"kl.network"}]
