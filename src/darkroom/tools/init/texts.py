"""What `darkroom init` says: the data, the trainings and their times, what more or less time would do, what to do."""

# No effect on any output: prints

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from darkroom.terminal.tables import aligned
from darkroom.tools.init.facts import Facts
from darkroom.tools.init.proposal import Machine, Wish, longest, splits
from darkroom.tools.plan.numbers import time_of

if TYPE_CHECKING:
    from darkroom.tools.init.command import Measured

_NAMED = 12  # classes that are named
_RARE = 20  # images of a class below which its samples are not to be judged
_ENOUGH = 0.8  # fraction of what is enough, below which it is said


def report(
    facts: Facts, wish: Wish, minutes: float, measured: Measured, lengths: Mapping[str, int], machine: Machine
) -> str:
    """Return the whole, some thirty lines."""
    return "\n".join(
        [
            *_data(facts),
            "",
            *_trainings(facts, minutes, measured, lengths, machine),
            "",
            *_alternatives(facts, minutes, measured, lengths),
            "",
            *_next(wish),
        ]
    )


def _data(facts: Facts) -> list[str]:
    low, middle, high = facts.side
    rest = "" if facts.looked == facts.images else f", {facts.looked:,} of them looked at"
    found = [
        f"{facts.images:,} images{rest}; shorter side {low} to {high} pixels, median {middle}; "
        f"longer / shorter {facts.aspect:.2g}."
    ]
    odd = {
        "grey": facts.grey,
        "with transparent places, which become white": facts.transparent,
        "of one colour": facts.plain,
        "with the bytes of another": facts.duplicates,
        "unreadable": facts.unreadable / facts.looked,
    }
    if said := [f"{fraction:.1%} {what}" for what, fraction in odd.items() if fraction]:
        found.append(f"Of these: {', '.join(said)}.")
    if facts.classes:
        named = [f"{name} {count * facts.scale:,.0f}" for name, count in list(facts.classes.items())[:_NAMED]]
        more = "" if len(facts.classes) <= _NAMED else f", and {len(facts.classes) - _NAMED} more"
        found.append(f"{len(facts.classes)} classes, about: {', '.join(named)}{more}.")
        rare = [name for name, count in facts.classes.items() if count * facts.scale < _RARE]
        if rare:
            some = ", ".join(rare[:_NAMED]) + (", …" if len(rare) > _NAMED else "")
            found.append(f"Fewer than {_RARE} images: {some}: their samples will be poor.")
    else:
        found.append("No classes: all images are of one, and scores of labels say nothing.")
    if facts.has_captions:
        found.append(f"{facts.captioned:.0%} have a caption; 99 % of the captions have at most {facts.tokens} tokens.")
    return found


def _trainings(
    facts: Facts, minutes: float, measured: Measured, lengths: Mapping[str, int], machine: Machine
) -> list[str]:
    train = facts.images * splits(facts.images)["train"]
    rows = [("training", "images seen", "of each", "time", "of enough")]
    seconds = {name.partition("@")[0]: job.seconds for name, job in measured.found.jobs.items()}
    for name, images in lengths.items():
        took = seconds[name] * images / measured.lengths[name]
        part = images / measured.tier.enough[name]
        rows.append((name, f"{images:,}", f"{images / train:.0f} ×", time_of(took), f"{part:.0%}"))
    total = measured.seconds(lengths)
    where = "GPU" if machine.gpu else f"{machine.cores} cores"
    found = [
        f"Networks of the size `{measured.tier.name}`, measured on this machine ({where}):",
        *aligned(rows),
        f"The whole DAG: {time_of(total)} with `snakemake --cores all`; {minutes:g} min were asked for.",
    ]
    if total > minutes * 60:
        found.append(f"That is more than asked for: less would show nothing. Give it --minutes {total / 55:.0f}.")
    elif measured.fraction(lengths) < _ENOUGH:
        short = min(lengths, key=lambda name: lengths[name] / measured.tier.enough[name])
        if lengths[short] < measured.tier.enough[short] * _ENOUGH:
            found.append(_short(facts, measured, lengths, short))
    load = measured.found.whole.load
    if load > 1.2:
        found.append(f"Others use this machine now: with this load it takes up to {load:.1f} times as long.")
    return found


def _short(facts: Facts, measured: Measured, lengths: Mapping[str, int], short: str) -> str:
    """Return a sentence on a training that gets fewer images than it should."""
    if lengths[short] > 0.9 * longest(short, facts):
        return (
            f"{facts.images:,} images are few: {short} sees each {lengths[short] / facts.images:.0f} times and no "
            "more, for it would learn them by heart."
        )
    return (
        f"The time is short: forms will be rough. About {time_of(measured.seconds(measured.tier.enough))} would do "
        "for networks of this size."
    )


def _alternatives(facts: Facts, minutes: float, measured: Measured, lengths: Mapping[str, int]) -> list[str]:
    """Return what half and four times the time would give, of the same networks."""
    found = []
    for factor, what in ((0.5, "Cheaper"), (4, "Better")):
        other = measured.fit(facts, minutes * 60 * factor * 0.92)
        if other == lengths:
            continue
        name = "train_generator" if "train_generator" in other else "train_tokenizer"
        found.append(
            f"{what}: --minutes {minutes * factor:g}, with about {other[name]:,} images for {name} and "
            f"{other['train_tokenizer']:,} for train_tokenizer" + (" (or larger networks)." if factor > 1 else ".")
        )
    return found


def _next(wish: Wish) -> list[str]:
    found = [
        "Next: `snakemake --cores all`, then open reports/index.html. Look first at the reconstructions: what they",
        "lack, no generated image can have. Then at the samples of each class beside real images, and only then at",
        "the scores, each beside its noise floor.",
    ]
    if wish.text:
        found.append('Then your own words: `darkroom sample --text "…"`.')
    return found
