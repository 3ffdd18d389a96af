"""Values that `darkroom init` chooses, with reasons; those of values that it always chooses alike."""

from typing import Any, NamedTuple

# By the end of the key, the longest one that fits.
REASONS = {
    "training.optimizer": "learns from fewer images than adamw",
    "training.precision": "of the networks' computations; bf16 where a GPU has it",
    "training.batch": "images in an optimizer step",
    "training.learning_rate": "the highest of the schedule",
    "training.schedule": "of the learning rate; it falls to the end",
    "training.warmup": "images until the learning rate is at its highest",
    "training.log_every": "images between points of the loss curve",
    "training.validate_every": "images between validations",
    "training.threads": "CPU threads: on the cores of a CPU two trainings run side by side",
    "training.ema_decay": "of the averaged weights, each optimizer step",
    "ingest.shard_size": "images in a tar",
    "dit.model.depth": "transformer blocks",
    "dit.model.heads": "attention heads",
    "dit.model.dropout": "none: it gained nothing, docs/quality.md",
    "dit.sampling.steps": "of the pictures that are drawn and scored while it trains",
    "dit.sampling.guidance": "of the same pictures",
    "dit.diffusion.word_dropout": "fraction of the words of a caption that are left out",
    "evaluate.every": "images between scores while it trains; 0: none",
    "evaluate.images": "drawn for a score while it trains",
    "train_clip.long_captions": "what is longer than context_length is not read",
    "model.image_network": "the network that reads images",
    "model.image_size": "pixels that CLIP sees, height and width",
    "unets.base.size": "positions of a latent, height and width, or pixels",
    "unets.base.embeddings": "of CLIP: the condition",
}


class Choice(NamedTuple):
    """The value of a key, and why it is this one, in a few words; "": it follows from another."""

    value: Any
    reason: str = ""


def usual_reason(key: str) -> str:
    """Return what is said of a dotted key; "": nothing."""
    ends = [end for end in REASONS if key == end or key.endswith(f".{end}")]
    return REASONS[max(ends, key=len)] if ends else ""
