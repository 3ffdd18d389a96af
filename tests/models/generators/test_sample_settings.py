"""The section `sample_generator.common`: which images, and what is refused in which words."""

from typing import Any

import pytest

from darkroom.errors import DarkroomError
from darkroom.models.generators.sample_settings import Common
from darkroom.params.section import validate
from darkroom.params.stage import processes, threads


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"labels": "frequenzy"}, "it is balanced, frequency, or a mapping"),
        ({"labels": [3]}, "it is balanced, frequency, or a mapping"),
        ({"labels": {7: 3, "cat": 2}}, "the class 7 must be a string: put it in quotes"),
        ({"labels": {"7": 0}}, "of the class 7 is 0, but must be 1 or more"),
        ({"labels": {"7": "many"}}, "of the class 7 is many"),
        ({"labels": {}}, "it is balanced, frequency, or a mapping"),
        ({"labels": {"7": 3}, "images": 5}, "images is 5, but labels requests 3 images: set images to 3, or to null"),
        ({"images": None}, "`sample_generator.common.images` is None"),
        ({"precision": "fp16"}, "must be one of fp32, bf16"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(values: dict[str, Any], said: str) -> None:
    with pytest.raises(DarkroomError) as error:
        validate(Common, values, "sample_generator.common")
    assert said in str(error.value) and len(str(error.value).splitlines()) == 1


def test_images_are_the_sum_of_the_numbers_by_class() -> None:
    labels = {"labels": {"7": 3, "cat": 2}}
    assert validate(Common, {"labels": {3: 4, 7: 1}}).labels == {"3": 4, "7": 1}, "the names of digits"
    assert [validate(Common, labels | more).images for more in ({}, {"images": None}, {"images": 5})] == [5, 5, 5]


def test_the_protocol_holds_what_pixels_depend_on() -> None:
    assert validate(Common, {"npz": True, "processes": 4, "threads": 3}).protocol() == Common().protocol()
    for change in ({"labels": "frequency"}, {"precision": "bf16"}, {"tf32": True}, {"compile": True}, {"seed": 2}):
        assert validate(Common, change).protocol() != Common().protocol()


def test_a_stage_that_samples_may_have_several_processes() -> None:
    section = {"common": {"threads": 2, "processes": 3}, "dit": {}}
    assert (threads(section), processes(section), processes({"training": {}}), processes({})) == (2, 3, 1, 1)
