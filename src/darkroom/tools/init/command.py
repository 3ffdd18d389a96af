"""`darkroom init`: inspect the images, benchmark this machine, and write params.yaml so that the DAG ends in time."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from darkroom.dag.history import write_expected
from darkroom.errors import DarkroomError
from darkroom.params.section import PARAMS
from darkroom.params.stage import read_yaml
from darkroom.params.yaml_text import parse_yaml
from darkroom.tools.editing import laid_over
from darkroom.tools.init.facts import look
from darkroom.tools.init.machine import this_machine
from darkroom.tools.init.measuring import EVALUATOR, MARGIN, measure_sizes, worth, write_stood_in
from darkroom.tools.init.proposal import Wish, propose, trainings
from darkroom.tools.init.request import Request
from darkroom.tools.init.subject import entry, opened
from darkroom.tools.init.texts import after, report
from darkroom.tools.init.writing import Choice, begin_from, header, restored, text_of
from darkroom.tools.preset import DEFAULT, overlay
from darkroom.tools.tune.search import EXACT, key_of
from darkroom.tools.tune.trials import Tuned, trials

_TUNED_FROM = 900.0  # seconds of the whole DAG, from which the minute that tuning takes is spent
_LOG = Path("logs/init-tune.log")
_KEYS = ("precision", "tf32", "channels_last", "compile")
_COMPILES = {False: 1800.0, True: 300.0}  # seconds of a training, from which compiling is tried; on a GPU


def init(request: Request) -> str:
    """Write params.yaml for a source of images, and return the findings and decisions.

    Raises:
        DarkroomError: the source cannot be read, or no settings for it are valid; params.yaml is as before then.
    """
    before = laid_over(begin_from(), overlay(DEFAULT))  # what a preset of other networks has set would not fit these
    begun = parse_yaml(before, PARAMS)
    machine = this_machine((begun.get("run") or {}).get("device", "auto"))
    subject = opened(request.source, begun)
    facts = look(subject)
    text = request.wants_texts(facts.has_captions)
    if text and not facts.may_have_texts:
        option = "--generator unclip" if request.generator == "unclip" else "--text"
        raise DarkroomError(
            f"{option} needs captions of most images, and not all the same; here {facts.captioned:.0%} have "
            f"one{', always the same' if facts.captioned > 0.5 else ''}. docs/own-images.md says where captions may be."
        )
    wish = Wish(subject.name, entry(subject, facts.found), text, request.generator, request.size)
    seconds = request.minutes * 60 * MARGIN
    with restored(request.dry_run) as keep:
        tried, passed_over = measure_sizes(before, facts, wish, machine, seconds)
        measured, lengths = max(tried, key=lambda each: worth(*each))
        choices = propose(facts, wish, measured.tier, machine, lengths)
        quicker = Quicker()
        if measured.seconds(lengths) >= _TUNED_FROM:
            write_stood_in(before, facts, wish, measured.tier, machine, lengths)
            quicker = tuned([name for name in trainings(wish) if name != EVALUATOR], machine.gpu, before, choices)
            measured = measured.sparing(quicker.saved, lengths)
            lengths = measured.fit(seconds)
            choices = propose(facts, wish, measured.tier, machine, lengths)
        subject = replace(subject, notes=(*subject.notes, *passed_over, *quicker.notes))
        found = report(subject, facts, wish, request, measured, lengths)
        written = text_of(before, choices | quicker.choices, header(request, found))
        if not request.dry_run:
            keep(written)
            write_expected(written, measured.left(lengths))
    return "\n".join([found, "", *after(facts, wish, request)])


@dataclass(frozen=True)
class Quicker:
    """Settings that make trainings faster at equal loss.

    notes: sentences on trainings that could not be tried, or whose settings are not allowed.
    """

    choices: dict[str, Choice] = field(default_factory=dict)  # by dotted key
    saved: dict[str, float] = field(default_factory=dict)  # seconds of each training that changes
    notes: list[str] = field(default_factory=list)


def tuned(names: list[str], gpu: bool, before: str, proposed: Mapping[str, Choice]) -> Quicker:
    """Try precision, memory layout and compilation of the trainings of params.yaml.

    The evaluator's is not among `names`, so that the scores of all runs are of one scale. Those that pay must be valid
    beside the `proposed` choices, which change the text `before`.
    """
    print("trying precision, memory layout and compilation …", flush=True)
    params, quicker = read_yaml(PARAMS), Quicker()
    with trials(names, _LOG) as on:
        for stage in on.chosen:
            lacking = f"{on.lacks[stage]} cannot run" if stage in on.lacks else ""
            found = Tuned(stage, [] if lacking else list(on.tries(stage, _KEYS, _COMPILES[gpu])))
            if why := lacking or found.why:
                quicker.notes.append(f"Precision and compilation of {stage} were not tried: {why}.")
                continue
            choices = {key_of(stage, key, params): choice for key, choice in _choices(found).items()}
            try:
                text_of(before, {**proposed, **quicker.choices, **choices})
            except DarkroomError as error:
                quicker.notes.append(f"The settings that are faster for {stage} are not allowed here: {error}")
                continue
            quicker.choices.update(choices)
            if choices and found.before.whole:
                quicker.saved[stage] = found.before.whole - found.taken.found.whole
    return quicker


def _choices(found: Tuned) -> dict[str, Choice]:
    """Return the changes of a training with their reasons."""
    before, after = found.before, found.taken.found
    back = "otherwise it cannot run" if before.why else "otherwise losses or gradients depart"
    pays = f"with what is tried here the training takes {after.whole / (before.whole or after.whole):.2f} of the time"
    given_up = bool(before.why) or before.departs
    return {
        key: Choice(value, f"tried here: {back}" if given_up and value == EXACT.get(key) else pays)
        for key, value in found.changes.items()
    }
