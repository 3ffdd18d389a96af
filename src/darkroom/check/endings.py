"""Whether a training that ends by itself (`min_improvement`) is judged, and often enough to end early."""

from collections.abc import Iterator
from typing import Any

from darkroom.models.kinds import GENERATORS
from darkroom.params.fits import refuse
from darkroom.params.training import FEWEST, Training
from darkroom.training.plateau import scoring_keys

# Judged by their validation loss, the prior by its cosines, which come with each validation.
_VALIDATED = (
    *("train_teacher", "train_extractor", "train_classifier", "train_distilled", "train_scene_reader"),
    "train_prior",
)


def fits(params: Any) -> None:
    """Check all trainings.

    Args:
        params: the whole of params.yaml, validated.

    Raises:
        DarkroomError: one has `min_improvement`, and no score or too few come before the last decay begins.
    """
    for key, training, every, cadence in trainings(params):
        if training.min_improvement is None:
            continue
        if not every:
            refuse(
                f"`{key}.min_improvement` is {training.min_improvement}, and no score says how good the images are, "
                f"for the loss of noisy ones says little: set {scoring_keys(key.partition('.')[0])}, or "
                "min_improvement to null."
            )
        # Of k scores those from k / 2 on are in the last half of the images; each comes with the step that is due.
        most = (training.decay_start - training.batch) // (2 * FEWEST - 2)
        if every > most:
            refuse(
                f"`{key}.min_improvement` is decided on {FEWEST} scores at least in the last half of the images seen, "
                f"before the decay of `images` ({training.images}) begins after {training.decay_start}: set "
                f"`{cadence}` ({every}) to {most} at most."
            )
        if 2 * training.warmup >= training.decay_start:
            refuse(
                f"`{key}.min_improvement` is decided after twice the warmup ({training.warmup}), and the decay of "
                f"`images` ({training.images}) begins after {training.decay_start}: shorten the warmup."
            )


def trainings(params: Any) -> Iterator[tuple[str, Training, int, str]]:
    """Yield the key, the settings and the images between two scores of each training, and the key that gives these."""
    for stage in _VALIDATED:
        training = getattr(params, stage).training
        yield f"{stage}.training", training, training.validate_every, f"{stage}.training.validate_every"
    if params.train_clip.source == "trained":
        training = params.train_clip.training
        yield "train_clip.training", training, training.validate_every, "train_clip.training.validate_every"
    if not params.train_tokenizer.untrained:
        key, training = "train_tokenizer.training", params.train_tokenizer.own_training
        yield key, training, training.validate_every, f"{key}.validate_every"
    generator = params.train_generator
    if GENERATORS.has("recipe", generator.kind):
        yield (
            "train_generator.training",
            generator.own_training,
            generator.evaluate.every,
            "train_generator.evaluate.every",
        )
    decoder = params.train_decoder
    for name in decoder.cascade(params.train_clip.source != "none"):
        if decoder.unets[name].trained:
            key = f"train_decoder.unets.{name}.training"
            yield key, decoder.training_of(name), decoder.evaluate.every, "train_decoder.evaluate.every"
