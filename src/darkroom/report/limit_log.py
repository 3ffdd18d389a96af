"""Print what limits the generator, at the end of its scoring."""

# No effect on any output: prints what limits the result

from darkroom.dag.records import outdated
from darkroom.report.limits import METRICS, read_limit


def print_limit() -> None:
    """Print what limits the generator; the score of another tokenizer than that of params.yaml does not count."""
    current = METRICS.is_file() and str(METRICS) not in outdated()
    if (verdict := read_limit(current)) is not None:
        print(f"what limits the result: {verdict.text}")
        if not current:
            print("the tokenizer is not scored yet: `darkroom scores` answers with its `rfd`")
