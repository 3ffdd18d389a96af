"""What `darkroom init` proposes fits together, whatever the time, the machine and the size."""

from collections import Counter
from dataclasses import replace
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
import yaml
from ruamel.yaml import YAML

from darkroom.check.check import validated
from darkroom.check.needs import require
from darkroom.data.splits import split_of
from darkroom.errors import DarkroomError
from darkroom.metrics.score import count_blocks
from darkroom.tools.cores import Machine
from darkroom.tools.init.facts import Facts
from darkroom.tools.init.proposal import (
    BATCH,
    TIERS,
    InitOptions,
    Tier,
    longest,
    propose,
    split_seed,
    splits,
    trainings,
)
from darkroom.tools.init.writing import text_of

FACTS = Facts(
    3786, 2000, 0, (64, 64, 64), 0.0, {"cat": 1500, "dog": 500}, 0.0, 1.0, 0.9, 14, 3786, 0.001,
)  # fmt: skip
MACHINES = [Machine(2), Machine(2, bf16=True), Machine(16, gpu=True, bf16=True)]
WISHES = [(False, "dit"), (True, "dit"), (False, "none")]  # text and generator
SOURCE = {"source": "digits", "path": "data/none", "embeddings": "data/none"}


def test_few_images_give_each_split_what_the_stages_need(clone: Path) -> None:
    """Whatever their number and their names are."""
    params: dict[tuple[bool, str], Any] = {}
    wrong = []
    for text, generator in WISHES:
        wish = InitOptions("mine", {"source": "folder", "path": "docs", "embeddings": "data/none"}, text, generator)
        choices = propose(FACTS, wish, TIERS[0], MACHINES[0], dict.fromkeys(trainings(wish), 9600))
        params[text, generator] = validated(yaml.safe_load(text_of((clone / "params.yaml").read_text(), choices)))
    for images in range(40, 261):
        captioned = {f"{images}-{number}": number % 3 > 0 for number in range(images)}
        facts = replace(FACTS, images=images, total=images, keys=captioned.keys())
        seed, fractions = split_seed(facts).value, splits(images)
        count, with_caption = (
            Counter(split_of(key, fractions, seed) for key in keys)
            for keys in (captioned, [key for key in captioned if captioned[key]])
        )
        for of, each in params.items():
            try:
                require(each, count, with_caption, "the folder")
            except DarkroomError as error:
                wrong.append((images, of, str(error)))
        # Standard errors can be estimated, and most images are trained on.
        assert count["val"] > 1 and count["train"] > 0.5 * images
        assert count_blocks(count["test"], 10) > 1
    assert wrong == []


@pytest.mark.parametrize("machine", range(len(MACHINES)))
@pytest.mark.parametrize("at", range(len(TIERS)), ids=[tier.name for tier in TIERS])
def test_every_size_of_networks_is_valid(clone: Path, at: int, machine: int) -> None:
    """`text_of` checks what comes out. Of tier, machine, wish and size, each pair is there."""
    tier, (text, generator), size = TIERS[at], WISHES[(at + machine) % 3], [None, 16, 48][(at + 2 * machine) % 3]
    wish = InitOptions("mine", SOURCE, text, generator, size)
    lengths = {name: tier.enough[name] // BATCH[name] * BATCH[name] for name in trainings(wish)}
    text_of((clone / "params.yaml").read_text(), propose(FACTS, wish, tier, MACHINES[machine], lengths))


@pytest.mark.parametrize(
    ("side", "size", "says"), [(20, 32, "enlarged"), (40, 48, "enlarged"), (64, 64, "as large"), (500, 64, "time")]
)
def test_no_image_is_stored_larger_than_it_shows(side: int, size: int, says: str) -> None:
    facts = replace(FACTS, side=(side, side, side))
    for wanted in (None, 16):
        wish = InitOptions("mine", SOURCE, False, "dit", wanted)
        lengths = dict.fromkeys(trainings(wish), 9600)
        found = propose(facts, wish, TIERS[-1], MACHINES[0], lengths)["ingest.image_size"]
        assert (found.value, says in found.reason) == ((size, True) if wanted is None else (16, False))


@pytest.mark.parametrize("text", [False, True])
def test_a_reason_stands_behind_its_value(clone: Path, text: bool) -> None:
    wish, tier = InitOptions("mine", SOURCE, text, "dit", None), TIERS[1]
    lengths = {name: tier.enough[name] // BATCH[name] * BATCH[name] for name in trainings(wish)}
    choices = propose(FACTS, wish, tier, MACHINES[0], lengths)
    found = YAML().load(text_of((clone / "params.yaml").read_text(), choices))
    for key, choice in choices.items():
        *path, last = key.split(".")
        if choice.reason:
            assert choice.reason in reduce(getitem, path, found).ca.items[last][2].value
    assert "8 × 8 positions of 4 channels" in choices["train_tokenizer.kind"].reason


def test_images_without_a_class_are_kept_however_few() -> None:
    wish = InitOptions("mine", SOURCE, False, "dit", None)
    lengths = dict.fromkeys(trainings(wish), 9600)
    found = propose(replace(FACTS, unlabelled=0.004), wish, TIERS[0], MACHINES[0], lengths)
    assert found["ingest.default_label"] == ("other", "0.4% of the images have no class")


@pytest.mark.parametrize("tier", TIERS, ids=lambda tier: tier.name)
def test_few_images_shorten_what_learns_them_by_heart_but_not_to_nothing(tier: Tier) -> None:
    most = {
        images: {name: longest(name, replace(FACTS, images=images), tier) for name in BATCH}
        for images in (60, 200, 3786)
    }
    few, some, many = most.values()
    assert all(few[name] <= some[name] <= many[name] for name in BATCH)
    assert few["train_generator"] / BATCH["train_generator"] == 500  # steps, before which it draws nothing
    assert many["train_generator"] == int(100 * 3786 * 0.8)
    # What learns no images by heart is bound by what is enough, far above where larger networks are tried.
    assert few["train_tokenizer"] == many["train_tokenizer"] == 4 * tier.enough["train_tokenizer"]


def test_where_there_are_captions_the_transformer_reads_them_and_has_all_cores(clone: Path) -> None:
    lengths = dict.fromkeys(BATCH, 9600)
    read = {}
    for text in (True, False):
        wish = InitOptions("mine", SOURCE, text)
        choices = propose(FACTS, wish, TIERS[0], Machine(4), lengths)
        values = yaml.safe_load(text_of((clone / "params.yaml").read_text(), choices))
        read[text] = values["train_generator"]
        assert values["train_clip"]["source"] == "none" and "train_clip" not in trainings(wish)
        # Each needs all cores, so none would run beside another.
        assert {values[name]["training"]["threads"] for name in trainings(wish)} == {4}
    assert (read[True]["captions"], read[False]["captions"]) == ("data/shards", "data/none")
    assert read[True]["dit"]["model"]["condition"] == "caption" and read[True]["dit"]["model"]["context_length"] == 16
    assert "condition" not in read[False]["dit"]["model"]  # its default: classes


def test_one_class_is_not_guided_and_after_a_short_training_others_are_strongly(clone: Path) -> None:
    wish, enough = InitOptions("mine", SOURCE, text=False), TIERS[0].enough["train_generator"]
    for classes, images, guidance in (
        ({"cat": 9}, 6400, 1.0),
        (FACTS.classes, 6400, 2.5),
        (FACTS.classes, enough, 1.5),
    ):
        lengths = dict.fromkeys(BATCH, images)
        choices = propose(replace(FACTS, classes=classes), wish, TIERS[0], MACHINES[0], lengths)
        values = yaml.safe_load(text_of((clone / "params.yaml").read_text(), choices))
        assert values["sample_generator"]["dit"]["guidance"] == guidance


@pytest.mark.parametrize("size", [32, 48])
@pytest.mark.parametrize("machine", MACHINES)
def test_half_the_precision_is_for_what_is_quicker_in_it(machine: Machine, size: int) -> None:
    wish = InitOptions("mine", SOURCE, text=True, size=size)
    choices = propose(FACTS, wish, TIERS[0], machine, dict.fromkeys(BATCH, 9600))
    halved = {key.partition(".")[0] for key, choice in choices.items() if choice.value == "bf16"}
    on_cpu = {"train_tokenizer"} if machine.bf16 and size == 48 else set()
    assert halved == ({"training"} if machine.gpu else on_cpu)


def test_cores_that_others_use_get_no_threads() -> None:
    choices = propose(
        FACTS, InitOptions("mine", SOURCE, text=False), TIERS[0], Machine(1, busy=1), dict.fromkeys(BATCH, 9600)
    )
    for key in ("train_generator.training.threads", "sample_generator.common.threads"):
        assert choices[key] == (1, "other processes use 1 of 2 cores, and threads would wait for them")
