"""The five scores that matter most, each beside that of held-out real images."""

from collections.abc import Iterator
from typing import NamedTuple

from darkroom.report.limits import limit, read_trainings
from darkroom.report.scores import distance_beside_real, error_of, title
from darkroom.tools.compare.revisions import WORKSPACE, Results
from darkroom.tools.compare.verdicts import standard_error

_FILES = ("generator", "text", "decoder", "tokenizer_samples")  # the first that has images is shown

Value = tuple[float, float | None]  # and its standard error


class Line(NamedTuple):
    """A score of generated images and of real ones, where it is known."""

    title: str
    run: Value
    real: Value | None


def shown_file(results: Results) -> str | None:
    """Return the name of the file of metrics whose scores are shown first; None: no image has a distance."""
    return next((name for name in _FILES if "fd" in results.metrics.get(name, {})), None)


def lines(results: Results, file: str) -> Iterator[Line]:
    """Yield distance, tokenizer, labels or texts, diversity and copies, as far as they are known."""
    scores, baselines = results.metrics[file], results.cards.get(file, {}).get("baselines", {})
    real = {
        **baselines.get("held_out", {}).get("in_domain", {}),
        **baselines.get("diversity", {}),
        **baselines.get("copies", {}),
        **{
            f"clip_text{end}": scores[f"clip_text_real{end}"] for end in ("", "_se") if f"clip_text_real{end}" in scores
        },
    }
    if "held_out" in (labels := baselines.get("label_accuracy", {})):
        real |= {"label_accuracy": labels["held_out"], "label_accuracy_se": labels["held_out_se"]}
    name, run, unseen = distance_beside_real(scores, baselines)
    if run is not None:
        floor = None if unseen is None else (unseen.value, unseen.se)
        yield Line(f"distance from real images ({name})", (run.value, run.se), floor)
    if "rfd" in (tokenizer := results.metrics.get("tokenizer", {})):
        yield Line("of it by the tokenizer (rfd)", (tokenizer["rfd"], None), (0.0, None))
    for names in (("label_accuracy", "clip_text"), ("diversity", "coverage"), ("copies_moved", "copies_pixels")):
        if known := [name for name in names if name in scores]:
            name = known[0]
            text = title(name) if title(name) == name else f"{title(name)} ({name})"
            floor = (real[name], real.get(error_of(name))) if name in real else None
            yield Line(text, (scores[name], standard_error(name, scores)), floor)


def limit_of(results: Results, file: str) -> str:
    """Return what limits the generator as a sentence; "" for other images. Curves are of the working tree alone."""
    if file != "generator":
        return ""
    trainings = read_trainings() if results.name == WORKSPACE else {}
    verdict = limit(results.metrics[file], results.cards.get(file, {}), results.metrics.get("tokenizer", {}), trainings)
    return f"\nWhat limits the result. {verdict.text}" if verdict else ""
