"""The page judges a training by the score by which it would end itself."""

from pathlib import Path

import pytest

from darkroom.models.clip.recipe import ClipRecipe
from darkroom.models.decoder.recipe import DecoderRecipe
from darkroom.models.evaluators.extractor import ExtractorRecipe
from darkroom.models.evaluators.scene_reader import SceneReaderRecipe
from darkroom.models.evaluators.teacher import TeacherRecipe
from darkroom.models.generators.classifier import ClassifierRecipe
from darkroom.models.generators.distilled import DistilledRecipe
from darkroom.models.generators.dit.recipe import DiTRecipe
from darkroom.models.prior.recipe import PriorRecipe
from darkroom.models.tokenizers.recipe import TokenizerRecipe
from darkroom.report.curves import read_training
from darkroom.report.inputs import FURTHER, TRAININGS
from darkroom.training.plateau import TITLES
from darkroom.training.recipe import Recipe

RECIPES: dict[str, type[Recipe]] = {
    "teacher": TeacherRecipe,
    "tokenizer": TokenizerRecipe,
    "extractor": ExtractorRecipe,
    "generator": DiTRecipe,
    "clip": ClipRecipe,
    "prior": PriorRecipe,
    "scene_reader": SceneReaderRecipe,
    "classifier": ClassifierRecipe,
    "distilled": DistilledRecipe,
    "decoder/base": DecoderRecipe,
}


@pytest.mark.parametrize("name", RECIPES)
def test_page_and_recipe_name_the_same_judge(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "curves" / name).mkdir(parents=True)
    judge = read_training(Path("curves") / name).judge
    assert judge == RECIPES[name].judge and judge in TITLES


def test_all_trainings_are_among_them() -> None:
    assert {*TRAININGS, *FURTHER} == RECIPES.keys() - {"decoder/base"}
