"""`darkroom init`: inspect the images, benchmark this machine, and write params.yaml so that the DAG fits the time."""

import math
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from darkroom.data.catalog import class_warnings
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.stage import read_yaml
from darkroom.params.yaml_text import parse_yaml
from darkroom.report.limits import limit, read_trainings
from darkroom.terminal.numbers import aligned, time_of
from darkroom.tools.compare.revisions import WORKSPACE, read_results
from darkroom.tools.cores import this_machine
from darkroom.tools.editing import laid_over
from darkroom.tools.init.facts import Facts, look
from darkroom.tools.init.measuring import FEW, MARGIN, Measured, measure_sizes, worth
from darkroom.tools.init.proposal import InitOptions, other_sizes, propose, size_of, training_images
from darkroom.tools.init.request import Request
from darkroom.tools.init.subject import Subject, entry, opened
from darkroom.tools.init.writing import LAST, Choice, begin_from, header, restored, text_of
from darkroom.tools.preset import BASE, overlay


def init(request: Request) -> str:
    """Write params.yaml for a source of images, and return findings and decisions.

    Raises:
        DarkroomError: the source cannot be read, or has no valid settings; params.yaml is then unchanged.
    """
    before = laid_over(begin_from(), overlay(BASE))  # settings of a preset for other networks would not fit
    begun = parse_yaml(before, PARAMS)
    machine = this_machine((begun.get("run") or {}).get("device", "auto"))
    subject = opened(request.source, begun)
    facts = look(subject)
    text = request.wants_texts(facts.has_captions)
    if text and not facts.may_have_texts:
        raise DarkroomError(
            f"--text needs different captions for most images; here {facts.captioned:.0%} have "
            f"one{', always the same' if facts.captioned > 0.5 else ''}. See docs/how-to/init.md on captions."
        )
    wish = InitOptions(subject.name, entry(subject, facts.total), text, request.generator, request.size)
    wish = replace(wish, tokenizer=_of_last_run(wish))
    seconds = request.minutes * 60 * MARGIN
    with restored() as keep:
        tried, passed_over = measure_sizes(before, facts, wish, machine, seconds)
        native = replace(wish, native=True)
        if any(_may_suffice(native, facts, wish, each, seconds) for each, _ in tried):
            with suppress(DarkroomError):  # too large for the memory
                of_native, notes = measure_sizes(before, facts, native, machine, seconds)
                if max(worth(*each) for each in of_native) >= 1:
                    wish, tried, passed_over = native, of_native, notes
        measured, lengths = max(tried, key=lambda each: worth(*each))
        choices = propose(facts, wish, measured.tier, machine, lengths)
        subject = replace(subject, notes=(*subject.notes, *passed_over))
        findings = report(subject, facts, wish, request, measured, lengths, choices["ingest.image_size"])
        written = text_of(before, choices, header(request, findings))
        keep(written)
    return "\n".join([findings, "", *after(facts, wish, request)])


def _may_suffice(native: InitOptions, facts: Facts, wish: InitOptions, measured: Measured, seconds: float) -> bool:
    """Estimate whether these networks, or smaller ones, may be trained on pixel art of its own size."""
    size, own = (size_of(facts, each, measured.tier) for each in (wish, native))
    resized = measured.resized(size, own)
    return own != size and resized.fraction(resized.fit(seconds)) >= FEW / 2


def _of_last_run(wish: InitOptions) -> float:
    """Return twice the images of the tokenizer for each of the generator, if it limited the last run; else 0.

    The last run counts if params.yaml and its scores are of the same images.
    """
    part = (read_yaml(PARAMS).get("parts") or {}).get(wish.part) or {}
    if all(part.get(key) == value for key, value in wish.source.items()):
        with suppress(DarkroomError):
            last, curves = read_results(WORKSPACE), read_trainings()
            scores, tokenizer = (last.metrics.get(name, {}) for name in ("generator", "tokenizer"))
            verdict = limit(scores, last.cards.get("generator", {}), tokenizer, curves)
            seen = [curve.train.points[-1][0] for curve in curves.values() if curve.train.points]
            if verdict is not None and verdict.name == "tokenizer" and len(seen) == len(curves) == 2:
                return 2 * seen[0] / seen[1]
    return 0.0


def report(
    subject: Subject,
    facts: Facts,
    wish: InitOptions,
    request: Request,
    measured: Measured,
    lengths: Mapping[str, int],
    size: Choice,
) -> str:
    """Return findings and decisions, up to twenty lines, from the template found.txt."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"number": "{:,}".format, "percent": "{:.1%}".format, "time": time_of}
    total = measured.seconds(lengths)
    text = environment.get_template("found.txt").render(
        subject=subject,
        facts=facts,
        wish=wish,
        measured=measured,
        class_warnings=class_warnings({"train": facts.classes}),
        trainings=_trainings(facts, measured, lengths),
        size=size,
        others=[_at_size(facts, measured.resized(size.value, each), each, request) for each in other_sizes(size.value)],
        total=total,
        seconds=60 * request.minutes,
        needed=math.ceil(total / 60 / MARGIN),
    )
    return text.rstrip()


def _trainings(facts: Facts, measured: Measured, lengths: Mapping[str, int]) -> list[str]:
    """Return the table of the trainings."""
    train, enough = training_images(facts), measured.enough
    rows = [("training", "images seen", "each image", "time", "of a sufficient length")]
    jobs = {name.partition("@")[0]: name for name in measured.plan.jobs}
    for name, images in lengths.items():
        seconds = measured.job_seconds(jobs[name], images / measured.lengths[name])
        rows.append(
            (name, f"{images:,}", f"{images / train:,.3g} ×", time_of(seconds), f"{images / enough[name]:,.0%}")
        )
    return aligned(rows)


def _at_size(facts: Facts, measured: Measured, size: int, request: Request) -> str:
    """Return what would become of another size in the same time."""
    lengths = measured.fit(request.minutes * 60 * MARGIN)
    times = lengths.get("train_generator", lengths["train_tokenizer"]) / training_images(facts)
    return f"`--size {size}`: {time_of(measured.seconds(lengths))}, each image {times:,.3g} times"


def after(facts: Facts, wish: InitOptions, request: Request) -> list[str]:
    """Return the next steps, and the path of the old params.yaml."""
    then = "" if wish.generator == "none" else ", then the samples next to real images"
    lines = [
        f"params.yaml is written; the old version is {LAST}.",
        "Next: run `snakemake --cores all`; after Ctrl-C, the same command continues. Then open reports/index.html:",
        f"look first at the reconstructions next to their originals{then}; only then at the scores.",
    ]
    if wish.text:
        lines.append('Then sample your own texts: `darkroom sample --text "…"`.')
    elif wish.generator == "dit" and len(facts.classes) > 1:
        first = ",".join([name for name in facts.classes if "," not in name][:2])
        lines.append(f"Then sample classes: `darkroom sample --labels {shlex.quote(first or '0,1')}`.")
    return [*lines, "If the images are poor, see docs/how-to/init.md."]
