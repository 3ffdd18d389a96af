"""Names of classes that nearly agree, and classes without a training image."""

import pytest

from darkroom.data.catalog import class_warnings, near_names, untrained

CLEAN = ["cat", "dog", "1", "10", "100", "class 1", "class 2", "", "s", "glass", "gloss", "bus", "A", "a", "e", "é"]
CLEAN += ["май", "маи", "かき", "かぎ", "key", "kes", "toe", "to", "boxer", "box", "10y", "die", "dy"]
CIFAR100 = """apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant
flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree
motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy
porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel
streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm"""


def test_names_that_nearly_agree_are_grouped() -> None:
    assert near_names(CLEAN) == []
    assert near_names(["Cat", "cat", "cat ", "dog"]) == [["Cat", "cat", "cat "]]
    assert near_names(["dog", "dogs"]) == [["dog", "dogs"]]
    assert near_names(["New York", "new-york", "class_01", "class 1"]) == [
        ["class 1", "class_01"],
        ["New York", "new-york"],
    ]
    assert near_names(["\ufb01g", "fig", "Straße", "STRASSE"]) == [["fig", "\ufb01g"], ["STRASSE", "Straße"]]


@pytest.mark.parametrize("one", ["bus buses", "box boxes", "puppy puppies", "café cafe", "CAFÉS café", "bush bushes"])
def test_names_that_differ_in_plural_or_accents_nearly_agree(one: str) -> None:
    assert near_names([*CLEAN, *one.split()]) != [] and near_names(one.split()) == [sorted(one.split())]


def test_longer_and_longer_names_are_grouped_once() -> None:
    assert near_names(["as", "ass", "asss", "asses"]) == [["as", "ass"]]


def test_known_classes_do_not_nearly_agree() -> None:
    from torchvision.models import ResNet18_Weights
    from torchvision.models.detection import FasterRCNN_ResNet50_FPN_Weights

    assert near_names(CIFAR100.split()) == []
    assert near_names(dict.fromkeys(FasterRCNN_ResNet50_FPN_Weights.COCO_V1.meta["categories"])) == []
    imagenet = dict.fromkeys(ResNet18_Weights.IMAGENET1K_V1.meta["categories"])
    # a dog and a jacket, whose names do agree; and one thing twice
    assert near_names(imagenet) == [["Cardigan", "cardigan"], ["sunglass", "sunglasses"]]


def test_classes_without_a_training_image() -> None:
    counts = {"train": {"a": 3, "b": 0}, "val": {"b": 1, "c": 2}, "test": {"a": 1, "d": 0}}
    assert untrained(counts) == ["b", "c"]
    (line,) = class_warnings(counts)
    assert "'b', 'c'" in line


def test_many_are_cut() -> None:
    counts = {"train": {}, "val": {f"{letter}x": 1 for letter in "abcdefghijklm"}, "test": {}}
    (line,) = class_warnings(counts)
    assert "'jx' and 3 more" in line
    assert class_warnings({"train": dict.fromkeys(CLEAN, 1), "val": {}, "test": {}}) == []
