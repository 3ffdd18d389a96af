"""Whether sections of params.yaml fit each other: what each room's `fits` needs, and the checks of the data."""

from typing import Any, NoReturn

from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS


def refuse(sentence: str) -> NoReturn:
    """Raise the error of a value that does not fit another."""
    raise DarkroomError(f"{PARAMS}: {sentence}")


def require_dropout(key: str, guidance: float, source: str, dropout: float) -> None:
    """Check that a guided network learns the unconditional prediction: that its condition is dropped at times.

    Args:
        key: of the scale of guidance.
        guidance: the scale; 1: none.
        source: the key of the fraction of conditions dropped in training.
        dropout: the fraction.
    """
    if guidance != 1 and not dropout:
        refuse(
            f"`{key}` is {guidance}, and `{source}` is 0, so the network never learns the unconditional prediction, "
            "from which guidance leads away: set it above 0, or the guidance to 1.0."
        )


def fits(params: Any) -> None:
    """Check the parts of the tokenizer.

    Args:
        params: the whole of params.yaml, validated.

    Raises:
        DarkroomError: one does not fit; names its key.
    """
    for part in params.train_tokenizer.parts or []:
        if part not in params.parts:
            refuse(
                f"`train_tokenizer.parts` names `{part}`, which is not under `parts` ({', '.join(params.parts)}): name "
                "those that it is trained on, or leave it empty for all."
            )
