"""`darkroom params` and its page: every key is described, no value stands twice, overrides work as printed."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from darkroom.check.check import whole
from darkroom.cli import main
from darkroom.dag.stages import TRAININGS
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.stage import DVC, leaves, read_yaml, stage_entry
from darkroom.params.training import SharedTraining, Training
from darkroom.tools.params import ENTRY, REQUIRED, keys, page, params
from helpers import DIGITS

ROOT = Path(__file__).parents[2]
KEYS = list(keys(whole()))


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A folder with params.yaml and dvc.yaml."""
    for file in (DIGITS, ROOT / "dvc.yaml"):
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_key_has_a_description():
    for key in KEYS:
        assert key.description.endswith("."), f"{key.name} has no description below its field"


def test_the_defaults_of_a_section_are_those_of_its_class():
    """What is left out of a section, and a section that is left out, mean the same."""

    def compare(model: Any, where: str) -> None:
        for name, field in model.model_fields.items():
            if isinstance(field.annotation, type) and hasattr(field.annotation, "model_fields"):
                compare(field.annotation, f"{where}.{name}")
                if not field.is_required() and field.default is not None:
                    assert field.default == field.annotation(), f"{where}.{name}"

    compare(whole(), "")


def generic(name: str) -> str:
    """A key of params.yaml as the schema has it, the names of parts and U-Nets left open."""
    return re.sub(r"^(parts|train_decoder\.unets)\.[^.]+\.", rf"\1.{ENTRY}.", name)


def named_by_dvc() -> set[str]:
    """The keys that dvc.yaml names, under `params` or in `${…}`: DVC refuses params.yaml without them."""
    dvc = read_yaml(ROOT / DVC)
    entries = {name: stage_entry(dvc, name) for name in dvc["stages"]}
    found = set(re.findall(r"\$\{([^}]+)\}", (ROOT / DVC).read_text()))
    for name, entry in entries.items():
        over = dvc["stages"][name].get("foreach", "").removeprefix("${").removesuffix("}")
        found |= {key.replace("item.", f"{over}.{ENTRY}.") for key in list(found) if key.startswith("item.") and over}
        found |= {key.replace("${key}", ENTRY) for key in entry.get("params", [])}
    return found


def test_no_value_stands_twice():
    """A value of the preset `digits` differs from its default, or a section above it does, or dvc.yaml names it.

    One of `training` differs from the default of some stage.
    """
    values, schema, named = read_yaml(DIGITS), {key.name: key for key in KEYS}, named_by_dvc()
    for name, value in leaves(values):
        key = schema.get(generic(name))
        stage, _, own = name.partition(".training.")
        if key is None or generic(name) in named or own in values["training"]:
            continue
        if name.startswith("training."):
            assert any(schema[f"{each}.{name}"].default != value for each in TRAININGS), f"`{name}` is of all stages"
            continue
        assert key.default is REQUIRED or value != key.default, f"`{name}` is {value!r}, its default"
    shared = values["training"]
    for stage in TRAININGS:
        for own, value in values[stage]["training"].items():
            assert own not in shared or shared[own] != value, f"`{stage}.training.{own}` is that of `training`"


def test_training_shares_all_keys_but_the_initial_weights():
    assert set(SharedTraining.model_fields) == set(Training.model_fields) - {"init"}


@pytest.mark.usefixtures("clone")
def test_what_differs_is_printed_and_with_all_the_rest():
    text = params("train_tokenizer.vqgan", everything=False)
    assert "train_tokenizer.vqgan.adversarial.gradient_penalty: 10.0\n      default 0.0; number, at least 0\n" in text
    assert "vqgan.width" not in text and "more keys have defaults" in text
    text = params("train_tokenizer.vqgan", everything=True)
    assert "- train_tokenizer.vqgan.width: 32\n      default 32; integer, above 0\n      Channels of" in text
    names = set(re.findall(r"^[ -] ([\w.]+):", params(None, everything=True), re.MULTILINE))
    expected = {key.name for key in KEYS if not key.is_section and ENTRY not in key.name}
    assert {generic(name) for name in names} >= expected
    assert {"parts.first.source", "parts.second.start", "train_decoder.unets.up.low.noise"} <= names


@pytest.mark.usefixtures("clone")
def test_a_training_says_where_its_value_comes_from():
    text = params("train_prior.training", everything=True)
    assert (
        "- train_prior.training.optimizer: adamw\n      default adamw (`training.optimizer`); adamw or muon\n" in text
    )
    assert "  train_prior.training.images: 12800\n      default 99968; integer, above 0\n" in text
    assert "- train_prior.training.learning_rate: 0.002\n      default 0.002; number, above 0\n" in text
    assert "- train_prior.training.tf32: false\n      default false; true or false\n" in text


@pytest.mark.usefixtures("clone")
def test_a_typo_is_answered_with_the_nearest_names():
    with pytest.raises(DarkroomError, match=r"no key `train_clip\.trainde`; did you mean .*`train_clip\.trained`"):
        params("train_clip.trainde", everything=False)


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_docs_add_the_keys_that_are_not_there():
    named = [name for name, _ in leaves(read_yaml(ROOT / PARAMS))]
    known = {key.name for key in KEYS}
    wrong = []
    for path in PAGES:
        for plus, key in re.findall(r"-S ['\"]?(\+*)([a-z]\w*(?:\.\w+)+)=", path.read_text()):
            of_training = re.sub(r"^train_\w+\.(?!training).+\.training\.", "training.", key)  # of a kind or a U-Net
            if generic(of_training) not in known:
                wrong.append(f"{path.relative_to(ROOT)}: {key} is no key of params.yaml")
            if not plus and not any(f"{name}.".startswith(f"{key}.") for name in named):  # `++` also sets one that is
                wrong.append(f"{path.relative_to(ROOT)}: {key} does not stand in params.yaml")
    assert wrong == []


def test_the_page_in_the_docs_is_the_schema_s():
    assert (ROOT / "docs/reference/params.md").read_text() == page(), "run `darkroom params --write`"


def test_another_page_is_refused(clone, capsys):
    (clone / "docs/reference").mkdir(parents=True)
    (clone / "docs/reference/params.md").write_text("old")
    assert main(["params", "--check"]) == 1
    assert "run `darkroom params --write` and commit it" in capsys.readouterr().err
    assert main(["params", "--write"]) == 0 and main(["params", "--check"]) == 0
    assert yaml.safe_load((clone / "params.yaml").read_text()) == yaml.safe_load(DIGITS.read_text())
