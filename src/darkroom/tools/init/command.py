"""`darkroom init`: looks at the images, measures this machine, and writes params.yaml so that the DAG ends in time."""

from collections.abc import Mapping
from dataclasses import replace

from darkroom.dag.history import write_expected
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.yaml_text import parse_yaml
from darkroom.tools.editing import laid_over
from darkroom.tools.init.facts import Facts, look
from darkroom.tools.init.machine import Machine, this_machine
from darkroom.tools.init.measuring import EVALUATOR, MARGIN, Measured, measure_sizes, worth, write_stood_in
from darkroom.tools.init.proposal import Wish, propose, trainings
from darkroom.tools.init.request import Request
from darkroom.tools.init.subject import Subject, entry, opened
from darkroom.tools.init.texts import after, report
from darkroom.tools.init.tuning import TUNED_FROM, Quicker, tuned
from darkroom.tools.init.writing import Choice, begin_from, header, restored, text_of
from darkroom.tools.preset import DEFAULT, overlay


def init(request: Request) -> str:
    """Write params.yaml for a source of images, and return what was found and decided.

    Raises:
        DarkroomError: the source cannot be read, or no settings for it are valid; params.yaml is as before then.
    """
    before, notes = begin_from()
    before = laid_over(before, overlay(DEFAULT))  # what a preset of other networks has set would not fit these
    begun = parse_yaml(before, PARAMS)
    machine = this_machine((begun.get("run") or {}).get("device", "auto"))
    subject = opened(request.source, begun)
    return _proposed(replace(subject, notes=(*subject.notes, *notes)), request, before, machine)


def _proposed(subject: Subject, request: Request, before: str, machine: Machine) -> str:
    facts = look(subject)
    wanted = request.wants_texts(facts.has_captions)
    if wanted and not facts.may_have_texts:
        asked = "--generator unclip" if request.generator == "unclip" else "--text"
        raise DarkroomError(
            f"{asked}: images of texts are learned of captions, most images need one, and not all the same; here "
            f"{facts.captioned:.0%} have one{', always the same' if facts.captioned > 0.5 else ''}. "
            "docs/own-images.md says where captions may stand."
        )
    wish = Wish(subject.name, entry(subject, facts.found), wanted, request.generator, request.size)
    seconds = request.minutes * 60 * MARGIN
    with restored(request.dry_run) as keep:
        tried, passed_over = measure_sizes(before, facts, wish, machine, seconds)
        measured, lengths = max(tried, key=lambda each: worth(*each))
        subject = replace(subject, notes=(*subject.notes, *passed_over))
        quicker = Quicker()
        if measured.seconds(lengths) >= TUNED_FROM:
            quicker = _quicker(facts, wish, before, machine, (measured, lengths))
            subject = replace(subject, notes=(*subject.notes, *quicker.notes))
            measured = measured.sparing(quicker.saved, lengths)
            lengths = measured.fit(seconds)
        text = report(subject, facts, wish, request, measured, lengths, machine)
        choices = propose(facts, wish, measured.tier, machine, lengths)
        written = text_of(before, choices | quicker.choices, header(request, text))
        if not request.dry_run:
            keep(written)
            write_expected(written, measured.left(lengths))
    return "\n".join([text, "", *after(facts, wish, request)])


def _quicker(
    facts: Facts, wish: Wish, before: str, machine: Machine, proposed: tuple[Measured, dict[str, int]]
) -> Quicker:
    """Return what is quicker for the trainings that are proposed, but for the evaluator: it is the same in all runs."""
    measured, lengths = proposed
    choices = propose(facts, wish, measured.tier, machine, lengths)

    def require(changed: Mapping[str, Choice]) -> None:
        text_of(before, {**choices, **changed})

    write_stood_in(before, facts, wish, measured.tier, machine, lengths)
    return tuned([name for name in trainings(wish) if name != EVALUATOR], machine.gpu, require)
