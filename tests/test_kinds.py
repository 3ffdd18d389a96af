"""Tables of kinds: every entry is a class, and choosing a kind imports that kind alone."""

import subprocess
import sys
from pathlib import Path

import pytest

from darkroom.artifacts.manifest import file_hashes, write_manifest
from darkroom.kinds import Kinds
from darkroom.models.tokenizers.load import KINDS
from darkroom.models.tokenizers.settings import TrainTokenizer
from darkroom.stages.train_tokenizer import RECIPES
from models.tokenizers.sections import kl

ROOMS = ("dvae", "kl", "vq_ar", "vqgan")


def test_each_kind_of_params_has_an_entry() -> None:
    kinds = set(TrainTokenizer.model_fields["kind"].annotation.__args__)
    assert KINDS.keys() == kinds
    assert RECIPES.keys() == kinds - {"pretrained"}  # which is not trained


@pytest.mark.parametrize(("table", "method"), [(KINDS, "from_pretrained"), (RECIPES, "build")])
def test_each_entry_is_a_class_that_does_what_the_table_is_for(table: Kinds, method: str) -> None:
    for kind in table:
        assert callable(getattr(table.load(kind), method)), kind


def imported(code: str) -> set[str]:
    """Return the modules of kinds, `tokenizers.kl` or `recipes.kl`, that a program has imported at its end."""
    code += "; import sys; print(*sys.modules)"
    env = {"PYTHONPATH": "src"}
    found = subprocess.run([sys.executable, "-c", code], check=True, env=env, capture_output=True, text=True)
    modules = found.stdout.split()
    return {
        f"{room}.{kind}" for room in ("tokenizers", "recipes") for kind in ROOMS if f"darkroom.{room}.{kind}" in modules
    }


def test_opening_a_tokenizer_imports_its_kind_and_no_other(tmp_path: Path) -> None:
    from darkroom.models.tokenizers.kl.network import KLAutoencoder, build

    model = KLAutoencoder(build(kl(), 1, 8))
    model.save_pretrained(tmp_path)
    facts = {"tokenizer_kind": "kl", "image_shape": [1, 8, 8], "latent_shape": list(model.latent_shape)}
    write_manifest(tmp_path, "tokenizer", **facts, files=file_hashes(tmp_path))
    code = "from pathlib import Path; from darkroom.models.tokenizers.load import load_tokenizer; "
    assert imported(f"{code}load_tokenizer(Path({str(tmp_path)!r}))") == {"tokenizers.kl"}


def test_the_stage_imports_no_kind_before_it_is_chosen() -> None:
    assert imported("import darkroom.stages.train_tokenizer") == set()
