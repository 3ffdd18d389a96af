"""What `darkroom init` says: the data, the trainings and their times, what more or less time would do, what to do."""

import math
import shlex
from collections.abc import Mapping

from darkroom.data.catalog import class_warnings
from darkroom.data.decoding import CONVERT
from darkroom.terminal.numbers import aligned, time_of
from darkroom.tools.init.facts import Facts
from darkroom.tools.init.machine import Machine
from darkroom.tools.init.measuring import FEW, MARGIN, Measured
from darkroom.tools.init.proposal import Wish, training_images
from darkroom.tools.init.request import Request
from darkroom.tools.init.subject import Subject
from darkroom.tools.init.tiers import SHORT, TIERS
from darkroom.tools.init.writing import LAST

_NAMED = 12  # classes that are named
_COUNTED = 10  # images of a class that were looked at, from which on their number in the source is said
_RARE = 20  # images of a class below which its samples are not to be judged


def report(
    subject: Subject,
    facts: Facts,
    wish: Wish,
    request: Request,
    measured: Measured,
    lengths: Mapping[str, int],
    machine: Machine,
) -> str:
    """Return what was found and decided, some twenty lines."""
    found = [*_data(facts, wish, subject), "", *_trainings(facts, request.minutes, measured, lengths, machine)]
    others = _alternatives(request.minutes, measured, lengths)
    return "\n".join([*found, *([""] if others else []), *others])


def _data(facts: Facts, wish: Wish, subject: Subject) -> list[str]:
    low, middle, high = facts.side
    rest = "" if facts.looked == facts.found else f", {facts.looked:,} of them looked at"
    usual, most = facts.aspect
    found = [
        f"{facts.found:,} images{rest}; shorter side {low} to {high} pixels, median {middle}; the longer one "
        f"{usual:.3g} to {most:.3g} times that: the middle square is kept."
    ]
    odd = {
        "grey": facts.grey,
        "transparent in places (these become white)": facts.transparent,
        "of one colour": facts.plain,
        "copies of another, of which one is kept": facts.duplicates,
        "left out (damaged, nothing to see, or two files of one name)": facts.left_out / facts.looked,
    }
    if shown := [f"{fraction:.1%} {what}" for what, fraction in odd.items() if fraction]:
        found.append(f"Of these: {', '.join(shown)}.")
    found += [f"{count:,} of those looked at are {name}: {CONVERT}." for name, count in facts.convert.items()]
    if facts.images < facts.found:
        found.append(f"About {facts.images:,} images differ.")
    return [*found, *_classes(facts, wish), *_captions(facts, wish, subject), *subject.notes]


def _classes(facts: Facts, wish: Wish) -> list[str]:
    if len(facts.classes) < 2:
        return ["No classes: the generator learns all images as one, and scores of labels say nothing."]
    counts = {name: round(count * facts.scale) for name, count in facts.classes.items()}
    sampled = facts.looked < facts.found
    named = ", ".join(f"{name} {count:,}" for name, count in list(counts.items())[:_NAMED])
    if sampled and len(counts) > _NAMED and min(facts.classes.values()) < _COUNTED:
        found = [f"At least {len(counts):,} classes, of at most {facts.found / len(counts):,.0f} images on average."]
    else:
        more = ", …" if len(counts) > _NAMED else ""
        found = [f"{len(counts):,} classes, with {'about ' if sampled else ''}so many images: {named}{more}."]
    found += [f"{line[0].upper()}{line[1:]}." for line in class_warnings({"train": facts.classes})]
    if not wish.text and (rare := [name for name, count in counts.items() if count < _RARE]):
        some = f"{', '.join(rare[:_NAMED])}{', …' if len(rare) > _NAMED else ''}"
        found.append(f"Fewer than {_RARE} images, so that samples will be poor: {some}.")
    return found


def _captions(facts: Facts, wish: Wish, subject: Subject) -> list[str]:
    if not facts.captioned:
        return ["No caption has a word."] if subject.part.settings.get("caption") in ("txt", "metadata") else []
    if wish.text:
        cut = "; the ends of longer ones are cut off" if facts.long else ""
        what = (
            f"99% of these have {facts.tokens} tokens at most{cut}. Images are made of texts (`--no-text`: of classes)"
        )
    elif facts.may_have_texts:
        what = "no images of texts, unless by --text"
    else:
        what = f"{'too few' if facts.captioned <= 0.5 else 'always the same one, too little'} for images of texts"
    return [f"{facts.captioned:.1%} have a caption; {what}."]


def _trainings(
    facts: Facts, minutes: float, measured: Measured, lengths: Mapping[str, int], machine: Machine
) -> list[str]:
    train = training_images(facts)
    rows = [("training", "images seen", "each image", "time", "of enough")]
    jobs = {name.partition("@")[0]: name for name in measured.found.jobs}
    for name, images in lengths.items():
        took = measured.job_seconds(jobs[name], images / measured.lengths[name])
        part = images / measured.tier.enough[name]
        rows.append((name, f"{images:,}", f"{images / train:,.3g} ×", time_of(took), f"{part:,.0%}"))
    total = measured.seconds(lengths)
    where = "the GPU" if machine.gpu else f"{machine.cores} cores"
    found = [
        f"Networks of the size `{measured.tier.name}`, measured on this machine, {where}:",
        *aligned(rows),
        f"The whole DAG: {time_of(total)} with `snakemake --cores all`; {time_of(60 * minutes)} were asked for.",
    ]
    if total > minutes * 60:
        found.append(
            f"That is more than asked for: less would show nothing. Give it --minutes {math.ceil(total / 60 / MARGIN)}."
        )
    elif total < 0.75 * minutes * 60:
        found.append("No training is made longer: more would teach little, or a generator would memorize its images.")
    if total <= minutes * 60 and measured.fraction(lengths) < SHORT:
        short = min(lengths, key=lambda name: lengths[name] / measured.tier.enough[name])
        enough = {name: min(measured.tier.enough[name], measured.longest[name]) for name in lengths}
        found.append(
            f"{facts.images:,} images are few: more of them would help more than more time."
            if lengths[short] > 0.9 * measured.longest[short]
            else f"The time is short: {short} sees {measured.fraction(lengths):.0%} of what is enough; about "
            f"{time_of(measured.seconds(enough))} would do for networks of this size."
        )
    if (load := measured.found.whole.load) > 1.2:
        found.append(f"Others use this machine now: with this load it takes up to {load:.1f} times as long.")
    return found


def _alternatives(minutes: float, measured: Measured, lengths: Mapping[str, int]) -> list[str]:
    """Return what half and four times the time would give, of the same networks."""
    found = []
    for factor, what in ((0.5, "Cheaper"), (4, "Better")):
        seconds = minutes * 60 * factor
        other = measured.fit(seconds * MARGIN)
        name = "train_generator" if "train_generator" in other else "train_tokenizer"
        same = other == lengths or (factor > 1 and other[name] < 1.1 * lengths[name])
        if same or measured.seconds(other) > seconds:  # in which not even the least of each fits
            continue
        tight = measured.fraction(other) < FEW or measured.tier.minutes * 60 > seconds
        more = "" if name == "train_tokenizer" else f" and {other['train_tokenizer']:,} for train_tokenizer"
        sizes = ", or larger networks" if factor > 1 and measured.larger else ""
        sizes = ", or smaller networks" if factor < 1 and tight and measured.tier != TIERS[0] else sizes
        found.append(
            f"{what}: --minutes {minutes * factor:g}, with about {other[name]:,} images for {name}{more}{sizes}."
        )
    return found


def after(facts: Facts, wish: Wish, request: Request) -> list[str]:
    """Return what to do now, and where the old params.yaml is."""
    if request.dry_run:
        return ["Nothing was written: --dry-run."]
    then = "" if wish.generator == "none" else ", then the samples beside real images"
    found = [
        f"params.yaml is written; as it was: {LAST}.",
        "Next: `snakemake --cores all`; Ctrl-C is safe, the same command goes on. Then open reports/index.html:",
        f"look first at the reconstructions beside their originals{then}; only then at the scores.",
    ]
    if wish.text:
        found.append('Then draw your own words: `darkroom sample --text "…"`.')
    elif wish.generator == "dit" and len(facts.classes) > 1:
        first = ",".join([name for name in facts.classes if "," not in name][:2])
        found.append(f"Then draw classes: `darkroom sample --labels {shlex.quote(first or '0,1')}`.")
    return [*found, "What to change when pictures are poor: docs/own-images.md."]
