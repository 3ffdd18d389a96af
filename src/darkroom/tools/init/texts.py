"""What `darkroom init` prints: the data, the trainings and their times, the result of more or less time, next steps."""

import math
import shlex
from collections.abc import Mapping

from darkroom.data.catalog import class_warnings
from darkroom.data.decoding import CONVERT
from darkroom.terminal.numbers import aligned, time_of
from darkroom.tools.init.facts import Facts
from darkroom.tools.init.measuring import MARGIN, Measured
from darkroom.tools.init.proposal import SHORT, Wish, training_images
from darkroom.tools.init.request import Request
from darkroom.tools.init.subject import Subject
from darkroom.tools.init.writing import LAST

_NAMED = 12  # classes that are named


def report(
    subject: Subject, facts: Facts, wish: Wish, request: Request, measured: Measured, lengths: Mapping[str, int]
) -> str:
    """Return the findings and decisions, up to twenty lines."""
    trainings = _trainings(facts, request.minutes, measured, lengths)
    alternatives = _alternatives(request.minutes, measured, lengths)
    return "\n".join([*_data(facts, wish, subject), "", *trainings, *([""] if alternatives else []), *alternatives])


def _data(facts: Facts, wish: Wish, subject: Subject) -> list[str]:
    low, middle, high = facts.side
    sample = "" if facts.looked == facts.found else f", {facts.looked:,} of them inspected"
    sides = f"shorter side {low} to {high} pixels, median {middle}"
    lines = [f"{facts.found:,} images{sample}; {sides}; the middle square is kept."]
    if left_out := facts.left_out / facts.looked:
        lines.append(f"{left_out:.1%} are left out: damaged, transparent, or two files of one name.")
    lines += [f"{count:,} of the inspected images are {name}: {CONVERT}." for name, count in facts.convert.items()]
    if facts.images < facts.found:
        lines.append(f"About {facts.images:,} images differ; {facts.duplicates:.1%} are copies, which are stored once.")
    if len(facts.classes) < 2:
        lines.append("No classes: the generator learns all images as one, and scores of labels say nothing.")
    else:
        named = ", ".join(f"{name} {count:,}" for name, count in list(facts.classes.items())[:_NAMED])
        lines.append(f"{len(facts.classes):,} classes{sample}: {named}{', …' * (len(facts.classes) > _NAMED)}.")
        lines += [f"{line[0].upper()}{line[1:]}." for line in class_warnings({"train": facts.classes})]
    if facts.captioned:
        use = "`--text` makes images of texts"
        if wish.text:
            use = f"images are made of texts, of up to {facts.tokens} tokens"
        elif not facts.may_have_texts:
            use = "too few, or always the same one, for images of texts"
        lines.append(f"{facts.captioned:.1%} have a caption: {use}.")
    elif subject.part.settings.get("caption") in ("txt", "metadata"):
        lines.append("All captions are empty.")
    return [*lines, *subject.notes]


def _trainings(facts: Facts, minutes: float, measured: Measured, lengths: Mapping[str, int]) -> list[str]:
    train, enough = training_images(facts), measured.tier.enough
    rows = [("training", "images seen", "each image", "time", "of enough")]
    jobs = {name.partition("@")[0]: name for name in measured.found.jobs}
    for name, images in lengths.items():
        seconds = measured.job_seconds(jobs[name], images / measured.lengths[name])
        rows.append(
            (name, f"{images:,}", f"{images / train:,.3g} ×", time_of(seconds), f"{images / enough[name]:,.0%}")
        )
    total, fraction = measured.seconds(lengths), measured.fraction(lengths)
    lines = [
        f"Networks of the size `{measured.tier.name}`, measured on this machine:",
        *aligned(rows),
        f"The whole DAG: {time_of(total)} with `snakemake --cores all`, of {time_of(60 * minutes)}.",
    ]
    if total > minutes * 60:
        lines.append(f"Shorter trainings would show nothing: use --minutes {math.ceil(total / 60 / MARGIN)}.")
    elif fraction < SHORT:
        short = min(lengths, key=lambda name: lengths[name] / enough[name])
        longer = {name: min(enough[name], measured.longest[name]) for name in lengths}
        remedy = "more images would help more than more time"
        if lengths[short] <= 0.9 * measured.longest[short]:
            remedy = f"{time_of(measured.seconds(longer))} would do for networks of this size"
        lines.append(f"{short} sees {fraction:.0%} of the images that are enough; {remedy}.")
    if (load := measured.found.whole.load) > 1.2:
        lines.append(f"Others use this machine now: with this load it takes up to {load:.1f} times as long.")
    return lines


def _alternatives(minutes: float, measured: Measured, lengths: Mapping[str, int]) -> list[str]:
    """Return what half and four times the time would give, of the same networks."""
    lines = []
    for label, factor in (("Cheaper", 0.5), ("Better", 4)):
        seconds = minutes * 60 * factor
        other = measured.fit(seconds * MARGIN)
        if other != lengths and measured.seconds(other) <= seconds:
            name = "train_generator" if "train_generator" in other else "train_tokenizer"
            lines.append(f"{label}: --minutes {minutes * factor:g}, with about {other[name]:,} images for {name}.")
    return lines


def after(facts: Facts, wish: Wish, request: Request) -> list[str]:
    """Return the next steps, and where the old params.yaml is."""
    if request.dry_run:
        return ["Nothing was written: --dry-run."]
    then = "" if wish.generator == "none" else ", then the samples beside real images"
    lines = [
        f"params.yaml is written; as it was: {LAST}.",
        "Next: `snakemake --cores all`; Ctrl-C is safe, the same command goes on. Then open reports/index.html:",
        f"look first at the reconstructions beside their originals{then}; only then at the scores.",
    ]
    if wish.text:
        lines.append('Then draw your own words: `darkroom sample --text "…"`.')
    elif wish.generator == "dit" and len(facts.classes) > 1:
        first = ",".join([name for name in facts.classes if "," not in name][:2])
        lines.append(f"Then draw classes: `darkroom sample --labels {shlex.quote(first or '0,1')}`.")
    return [*lines, "What to change when pictures are poor: docs/own-images.md."]
