"""What `darkroom init` says: the data, the trainings and their times, what more or less time would do, what to do."""

import math
import shlex
from collections.abc import Mapping

from darkroom.data.classes import class_warnings
from darkroom.data.decoding import CONVERT
from darkroom.terminal.numbers import aligned, time_of
from darkroom.tools.init.allotting import FEW, MARGIN
from darkroom.tools.init.facts import Facts
from darkroom.tools.init.machine import Machine
from darkroom.tools.init.measuring import Measured
from darkroom.tools.init.proposal import Wish, training_images
from darkroom.tools.init.request import Request
from darkroom.tools.init.subject import Subject
from darkroom.tools.init.tiers import SHORT, TIERS
from darkroom.tools.init.writing import LAST

_NAMED = 12  # classes that are named
_COUNTED = 10  # images of a class that were looked at, from which on their number in the source is said
_RARE = 20  # images of a class below which its samples are not to be judged
_ROUGH = 0.5  # fraction of what is enough, below which forms are rough
_COPIES = 0.05  # fraction of copies, from which on it is said how many images differ
_SQUARE = 1.05  # longer / shorter side, below which an image is square
_UNUSED = 0.75  # fraction of the time asked for, below which it is said why no more is used


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
    others = _alternatives(facts, request.minutes, measured, lengths)
    return "\n".join([*found, *([""] if others else []), *others])


def _data(facts: Facts, wish: Wish, subject: Subject) -> list[str]:
    low, middle, high = facts.side
    rest = "" if facts.looked == facts.found else f", {facts.looked:,} of them looked at"
    sides = f"{middle} pixels" if low == high else f"{low} to {high} pixels, median {middle}"
    found = [f"{facts.found:,} images{rest}; shorter side {sides}, {_shape(*facts.aspect)}."]
    odd = {
        "grey": facts.grey,
        "transparent in places (these become white)": facts.transparent,
        "of one colour": facts.plain,
        "copies of another": facts.duplicates,
        "left out (damaged, nothing to see, or two files of one name)": facts.left_out / facts.looked,
    }
    if said := [f"{_part(fraction)} {what}" for what, fraction in odd.items() if fraction]:
        found.append(f"Of these: {', '.join(said)}.")
    found += [f"{count:,} of those looked at are {name}: {CONVERT}." for name, count in facts.convert.items()]
    if facts.duplicates >= _COPIES and facts.images < facts.found:
        found.append(f"About {facts.images:,} images differ; of copies one is learned, the others are left out.")
    return [*found, *_classes(facts, wish), *_captions(facts, wish, subject), *subject.notes]


def _shape(middle: float, most: float) -> str:
    """Return longer / shorter side in words, by its median and its 95th percentile."""
    if most < _SQUARE:
        return "square"
    if most < _SQUARE * middle:
        return f"the longer one {middle:.3g} times that: the middle is kept"
    usual = "most are square" if middle < _SQUARE else f"in the median {middle:.3g}"
    return f"the longer one up to {most:.3g} times that ({usual}): the middle is kept"


def _part(fraction: float) -> str:
    """Return a fraction in per cent; one digit behind the point where it is small."""
    return "all" if fraction >= 0.9995 else f"{fraction:.1%}" if fraction < 0.1 else f"{fraction:.0%}"


def _classes(facts: Facts, wish: Wish) -> list[str]:
    if len(facts.classes) < 2:
        return ["No classes: the generator learns all images as one, and scores of labels say nothing."]
    counts = {name: round(count * facts.scale) for name, count in facts.classes.items()}
    about = "" if facts.looked == facts.found else "about "
    named = ", ".join(f"{name} {count:,}" for name, count in list(counts.items())[:_NAMED])
    if len(counts) <= _NAMED:
        found = [f"{len(counts)} classes, with {about}so many images: {named}."]
    elif about and min(facts.classes.values()) < _COUNTED:
        found = [f"At least {len(counts):,} classes, of at most {facts.found / len(counts):,.0f} images on average."]
    else:
        found = [
            f"{len(counts):,} classes of {about}{min(counts.values()):,} to {max(counts.values()):,} images: {named}, …"
        ]
    found += [f"{line[0].upper()}{line[1:]}." for line in class_warnings({"train": facts.classes})]
    rare = [name for name, count in counts.items() if count < _RARE]
    if rare and not wish.text:
        some = "" if len(rare) == len(counts) else f" ({', '.join(rare[:_NAMED])}{', …' if len(rare) > _NAMED else ''})"
        all_ = "All" if len(rare) == len(counts) else f"{len(rare):,} of these"
        have = "has" if len(rare) == 1 else "have"
        found.append(f"{all_} {have} fewer than {_RARE} images{some}: their samples will be poor.")
    return found


def _captions(facts: Facts, wish: Wish, subject: Subject) -> list[str]:
    if not facts.captioned:
        return ["No caption has a word."] if subject.part.settings.get("caption") in ("txt", "metadata") else []
    said = f"{_part(facts.captioned).capitalize()} have a caption"
    if not facts.may_have_texts:
        why = "too few" if facts.captioned <= 0.5 else "always the same one, too little"
        return [f"{said}: {why} for images of texts."]
    if not facts.has_captions and not wish.text:
        return [f"{said}, but few have one of their own: no images of texts, unless by --text."]
    if not wish.text:
        return [f"{said}; no images of texts are asked for."]
    long = f"many are longer than the {facts.tokens} tokens that are read, and their ends are cut off"
    length = long if facts.long else f"99% of these have {facts.tokens} tokens at most"
    of_classes = "" if wish.unclip else "; `--no-text`: of classes"
    return [f"{said}; {length}. Images are made of texts{of_classes}."]


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
        f"The whole DAG: {time_of(total)} with `snakemake --cores all`; {_asked(minutes)} were asked for.",
    ]
    if total > minutes * 60:
        found.append(
            f"That is more than asked for: less would show nothing. Give it --minutes {math.ceil(total / 60 / MARGIN)}."
        )
    elif total < _UNUSED * minutes * 60:
        found.append(
            f"No training is made longer: more would teach little, or a generator {facts.images:,} images by heart."
        )
    if total <= minutes * 60 and measured.fraction(lengths) < SHORT:
        found.append(_short(facts, measured, lengths))
    load = measured.found.whole.load
    if load > 1.2:
        found.append(f"Others use this machine now: with this load it takes up to {load:.1f} times as long.")
    return found


def _asked(minutes: float) -> str:
    return f"{minutes:g} min" if minutes < 120 else f"{minutes / 60:.3g} h"


def _short(facts: Facts, measured: Measured, lengths: Mapping[str, int]) -> str:
    """Return a sentence on the training that gets the fewest images of what is enough."""
    short = min(lengths, key=lambda name: lengths[name] / measured.tier.enough[name])
    if lengths[short] > 0.9 * measured.longest[short]:
        return f"{facts.images:,} images are few: more of them would help more than more time."
    fraction = measured.fraction(lengths)
    rough = "; forms will be rough" if fraction < _ROUGH else ""
    wanted = {name: min(measured.tier.enough[name], measured.longest[name]) for name in lengths}
    enough = time_of(measured.seconds(wanted))
    return (
        f"The time is short: {short} sees {fraction:.0%} of what is enough{rough}. "
        f"About {enough} would do for networks of this size."
    )


def _alternatives(facts: Facts, minutes: float, measured: Measured, lengths: Mapping[str, int]) -> list[str]:
    """Return what half and four times the time would give, of the same networks."""
    found = []
    for factor, what in ((0.5, "Cheaper"), (4, "Better")):
        seconds = minutes * 60 * factor * MARGIN
        other = measured.fit(seconds)
        name = "train_generator" if "train_generator" in other else "train_tokenizer"
        if other == lengths or (factor > 1 and other[name] < 1.1 * lengths[name]):
            continue
        if measured.seconds(other) > minutes * 60 * factor:  # not even the least of each
            continue
        tight = measured.fraction(other) < FEW or measured.tier.minutes * 60 * MARGIN > seconds
        end = ""
        if factor > 1 and measured.larger:
            end = ", or larger networks"
        elif factor < 1 and tight and measured.tier != TIERS[0]:
            end = ", or smaller networks"
        found.append(
            f"{what}: --minutes {minutes * factor:g}, with about {other[name]:,} images for {name}"
            + (f" and {other['train_tokenizer']:,} for train_tokenizer" if name != "train_tokenizer" else "")
            + f"{end}."
        )
    return found


def after(facts: Facts, wish: Wish, request: Request) -> list[str]:
    """Return what to do now, and where the old params.yaml is."""
    if request.dry_run:
        return ["Nothing was written: --dry-run."]
    found = [
        f"params.yaml is written; as it was: {LAST}.",
        "Next: `snakemake --cores all`; Ctrl-C is safe, the same command goes on. Then open reports/index.html: look",
    ]
    if wish.generator == "none":
        found.append("at the reconstructions beside their originals; and only then at the scores.")
    else:
        found += [
            "first at the reconstructions, for what they lack no generated image can have; then at the samples beside",
            "real images; and only then at the scores, each beside its noise floor.",
        ]
    if wish.text:
        found.append('Then draw your own words: `darkroom sample --text "…"`.')
    elif wish.generator == "dit" and len(facts.classes) > 1:
        first = ",".join([name for name in facts.classes if "," not in name][:2])
        found.append(f"Then draw classes: `darkroom sample --labels {shlex.quote(first or '0,1')}`.")
    return [*found, "What to change when pictures are poor: docs/own-images.md."]
