"""The defaults of params.yaml are what `darkroom init` writes for some thousand colour pictures and half an hour."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from darkroom.check.check import check, completed
from darkroom.dag.stages import STAGES
from darkroom.models.generators.dit.settings import Model
from darkroom.params.stage import DVC, items, leaves, lookup, read_yaml, resolve, scope, spread_over, stage_entry
from darkroom.tools.cores import Machine
from darkroom.tools.init.proposal import TIERS, InitOptions, propose, trainings
from darkroom.tools.init.writing import text_of
from tools.init.conftest import Pictures, classes
from tools.init.test_proposal import FACTS

SMALL = next(tier for tier in TIERS if tier.name == "small")
# Of the machine, of unCLIP, of kinds not chosen, what a U-Net has as `sample_decoder.common` has it, and what Gaussian
# diffusion, which params.yaml may ask for, would refuse; scores while the generator trains, which need the evaluator;
# the tokenizer, whose defaults are those of latent diffusion, and others in params.yaml.
OTHERS = re.compile(
    r"^train_generator\.(evaluate|dit\.sampling)\.|\.(threads|precision|time_shift)$|\.(none|pretrained|autoregressive|masked)\b|^train_tokenizer\.(dvae|vqgan|vq_ar|identity)\b|^sample_decoder\.unets\.|^train_(clip|decoder|prior)\.|^train_tokenizer\.kl\.(patch|channels|training\.batch)$"
)


@pytest.fixture
def written(clone: Path, pictures: Pictures) -> dict[str, Any]:
    """What `darkroom init` writes for a folder of captioned pictures, its trainings as long as is enough.

    Without CLIP; the default decoder makes latents.
    """
    source = {"source": "folder", "path": str(pictures("mine", classes("cat", "dog"))), "embeddings": "data/none"}
    wish = InitOptions("mine", source, text=False)
    choices = propose(FACTS, wish, SMALL, Machine(2), {name: SMALL.enough[name] for name in trainings(wish)})
    values = yaml.safe_load(text_of((clone / "params.yaml").read_text(), choices))
    values["train_decoder"] |= {"tokenizer": "models/tokenizer", "latents": "data/latents"}
    return values


def bare(values: dict[str, Any]) -> dict[str, Any]:
    """The data, and the keys that dvc.yaml names: sections empty, the others as they are."""
    dvc, found = read_yaml(DVC), {"run": {}, "parts": values["parts"], "ingest": values["ingest"]}
    for stage in STAGES:
        entry = stage_entry(dvc, stage)
        for item in items(values, dvc, stage):
            named = [resolve(each, scope(values, dvc, stage, item)) for each in entry.get("params", [])]
            named += set(re.findall(r"\$\{([\w.]+)\}", str(entry))) - {"key"}
            for key in named:
                put(found, values, re.sub(r"^item\.", f"{spread_over(dvc, stage)}.{item}.", key))
    return found


def put(found: dict[str, Any], values: dict[str, Any], key: str) -> None:
    """Insert a key of `values` into other values, a section without what is in it."""
    value, (*path, last) = lookup(values, key), key.split(".")
    for name in path:
        found = found.setdefault(name, {})
    found.setdefault(last, {} if isinstance(value, dict) else value)


def resolved(values: dict[str, Any]) -> dict[str, Any]:
    """The values of all keys, by dotted key, without `OTHERS`."""
    whole = completed(values)
    whole["train_generator"]["dit"]["model"] |= Model(**values["train_generator"]["dit"].get("model", {})).shape
    return {key: value for key, value in leaves(whole) if not OTHERS.search(key)}


def test_what_init_writes_is_the_default(written: dict[str, Any]) -> None:
    least = bare(written)
    assert len(list(leaves(least))) < len(list(leaves(written))) * 0.6
    assert "fit each other" in check(least)
    default, asked = resolved(least), resolved({name: written[name] for name in least})
    assert default == asked


def test_the_default_fits_pictures_without_captions(written: dict[str, Any]) -> None:
    written["train_clip"]["source"] = "none"
    assert "fit each other" in check(bare(written))
