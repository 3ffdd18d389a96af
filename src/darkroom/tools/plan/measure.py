"""A stage's plan, measured in a process of its own: two stages side by side slow each other down, as when they run."""

import importlib
from collections.abc import Callable
from dataclasses import replace

from darkroom.dag.stages import STAGES
from darkroom.tools.plan.loading import Loading

LOADING = Loading()
with LOADING.recorded():  # whoever imports this file loads what the stages load, and times it
    from darkroom.tools.plan import clips, decoders, decodings, passes, priors, readers, trainings
    from darkroom.tools.plan.facts import Facts
    from darkroom.tools.plan.stage_plan import StagePlan
    from darkroom.tools.plan.timing import Stopwatch

    for _stage in STAGES:
        importlib.import_module(f"darkroom.stages.{_stage}")

_GUESS = 0.5  # seconds of a stage that runs no network and has not run here

_WHOLE: dict[str, Callable[[Facts], StagePlan]] = {
    "train_teacher": trainings.plan_teacher,
    "train_tokenizer": trainings.plan_tokenizer,
    "train_extractor": trainings.plan_extractor,
    "train_generator": passes.plan_dit,
    "score_tokenizer": passes.plan_score_tokenizer,
    "sample_tokenizer": passes.plan_sample_tokenizer,
    "reference_stats": passes.plan_reference,
    "score_tokenizer_samples": passes.plan_score_tokenizer_samples,
    "sample_generator": passes.plan_sample,
    "score_generator": passes.plan_score,
    "train_clip": clips.plan_clip,
    "sample_decoder": decodings.plan_sample_decoder,
    "train_scene_reader": readers.plan_reader,
    "score_decoder": decodings.plan_score_decoder,
    "train_prior": priors.plan_prior,
    "sample_text": decodings.plan_sample_text,
    "score_text": decodings.plan_score_text,
}
_EACH: dict[str, Callable[[Facts, str], StagePlan]] = {
    "ingest": passes.plan_ingest,
    "encode_latents": passes.plan_encode,
    "embed_clip": clips.plan_embed,
    "train_decoder": decoders.plan_unet,
}


def measure(name: str, facts: Facts) -> StagePlan:
    """Return the plan of a stage, or of one of its items, STAGE@ITEM; `report` and its like are guessed.

    What a stage loads before it works is in its seconds.
    """
    facts = replace(facts, watch=Stopwatch())
    stage, _, item = name.partition("@")
    with LOADING.recorded():
        if stage in _WHOLE:
            plan = _WHOLE[stage](facts)
        elif stage in _EACH:
            plan = _EACH[stage](facts, item)
        else:
            plan = StagePlan(name, seconds=_GUESS, source="guess")
    plan.seconds += LOADING.seconds([f"darkroom.stages.{stage}", *plan.uses])
    plan.wall, plan.work = facts.watch.wall, facts.watch.work
    return plan
