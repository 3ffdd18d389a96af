"""Print what limits the generator, at the end of its scoring."""

# No effect on any output: prints what limits the result

from pathlib import Path

from darkroom.dag.records import outdated
from darkroom.report.limits import limit, read_trainings
from darkroom.report.metadata import read_json


def print_limit() -> None:
    """Print what limits the generator; the score of another tokenizer than that of params.yaml does not count."""
    scores, card, tokenizer = map(Path, ("metrics/generator.json", "cards/generator.json", "metrics/tokenizer.json"))
    is_current = tokenizer.is_file() and str(tokenizer) not in outdated()
    verdict = limit(read_json(scores), read_json(card), read_json(tokenizer) if is_current else {}, read_trainings())
    if verdict is not None:
        print(f"what limits the result: {verdict.text}")
    if not is_current:
        print("the tokenizer is not scored yet: `darkroom scores` answers with its `rfd`")
