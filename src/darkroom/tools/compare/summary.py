"""The five scores that matter most, each beside that of held-out real images, and what limits the result."""

from collections.abc import Iterator

from darkroom.report.limits import limit, read_trainings
from darkroom.report.scores import distance_beside_real, error_of, title
from darkroom.tools.compare.revisions import WORKSPACE, Results
from darkroom.tools.compare.verdicts import standard_error

_FILES = ("generator", "text", "decoder", "tokenizer_samples")  # the first that has images is shown
# Names, of which the first that the file has is shown; a title instead of its own; an arrow to the better direction.
_OTHERS = (
    (("as_described", "label_accuracy", "clip_text"), "", " ↑"),
    (("diversity", "coverage"), "", "  "),
    (("copies_moved", "copies_pixels"), "copied training images", " ↓"),
)

Value = tuple[float, float | None]  # and its standard error


def shown_file(results: Results) -> str | None:
    """Return the name of the file of metrics whose scores are shown first; None: no image has a distance."""
    return next((name for name in _FILES if "fd" in results.metrics.get(name, {})), None)


def lines(results: Results, file: str) -> Iterator[tuple[str, Value, Value | None]]:
    """Yield the titles of scores and their values of generated and of real images, as far as they are known."""
    scores, baselines = results.metrics[file], results.cards.get(file, {}).get("baselines", {})
    labels = baselines.get("label_accuracy", {})
    real = baselines.get("held_out", {}).get("in_domain", {}) | baselines.get("copies", {})
    real |= baselines.get("diversity", {}) | baselines.get("scene_reader", {}).get("originals", {})
    real |= {f"clip_text{end}": scores.get(f"clip_text_real{end}") for end in ("", "_se")}
    real |= {f"label_accuracy{end}": labels.get(f"held_out{end}") for end in ("", "_se")}
    name, run, unseen = distance_beside_real(scores, baselines)
    if run is not None:
        floor = None if unseen is None else (unseen.value, unseen.se)
        yield f"distance from real images ({name}) ↓", (run.value, run.se), floor
    if "rfd" in (tokenizer := results.metrics.get("tokenizer", {})):
        yield "distance of reconstructions (rfd) ↓", (tokenizer["rfd"], None), (0.0, None)
    for names, own, direction in _OTHERS:
        for name in [name for name in names if name in scores][:1]:
            text = name if title(name) == name else f"{own or title(name)} ({name})"
            floor = None if real.get(name) is None else (real[name], real.get(error_of(name)))
            yield f"{text}{direction}", (scores[name], standard_error(name, scores)), floor


def limit_of(results: Results, file: str) -> str:
    """Return what limits the generator as a line; "" for other images. Curves are of the working tree alone."""
    trainings = read_trainings() if results.name == WORKSPACE else {}
    scores, card = results.metrics[file], results.cards.get(file, {})
    verdict = limit(scores, card, results.metrics.get("tokenizer", {}), trainings) if file == _FILES[0] else None
    return f"\nWhat limits the result. {verdict.text}" if verdict else ""
