"""The network that reads scenes: its training, on its own renders."""

from dataclasses import replace

import torch

from darkroom.models.evaluators.scene_reader.recipe import SceneReaderRecipe
from darkroom.stages import train_scene_reader
from darkroom.tools.plan.facts import Facts
from darkroom.tools.plan.stage_plan import StagePlan
from darkroom.tools.plan.trainings import plan_training, section

_RENDERS = 16  # that say how long one takes


def reader_recipe(facts: Facts) -> SceneReaderRecipe:
    """Return the recipe of train_scene_reader on its renders, which need no data."""
    params = section("train_scene_reader")
    train, val = (train_scene_reader.renders(params, split) for split in ("train", "val"))
    return train_scene_reader.build(params, train, val)


def plan_reader(facts: Facts) -> StagePlan:
    """Plan train_scene_reader: updates, and the renders, of which none comes twice; nothing where no score asks."""
    params = section("train_scene_reader")
    if params.idle:
        return StagePlan("train_scene_reader")
    settings = params.train_scene_reader
    renders = train_scene_reader.renders(params, "val")
    count = min(_RENDERS, len(renders))
    each = facts.watch.once(lambda: renders.__getitems__(range(count)), torch.device("cpu")) / count
    known = replace(facts, read_seconds=each)
    plan = plan_training(
        "train_scene_reader", lambda device: reader_recipe(facts), settings.training, params.run, known, 1
    )
    if plan.source == "measured":
        plan.seconds += settings.held_out * each  # those of the last scores
    return plan
