"""Measure this machine by running the DAG in miniature, with networks of one or two sizes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from darkroom.artifacts.atomic import write_bytes
from darkroom.errors import DarkroomError
from darkroom.params.section import NO_FILE, PARAMS
from darkroom.tools.cores import Machine
from darkroom.tools.init.facts import Facts
from darkroom.tools.init.proposal import BATCH, TIERS, InitOptions, Tier, longest, propose, trainings
from darkroom.tools.init.writing import text_of
from darkroom.tools.plan.forks import quiet
from darkroom.tools.plan.plan import Planned, planned, side_by_side

MARGIN = 0.97  # fraction of the requested time that is used: short runs end before they are expected to
FEW = 0.4  # fraction of the sufficient images, below which smaller networks are tried
_STEP = 1.06  # factor by which one training is lengthened at a time
_LEAST = 0.1  # minimum fraction of the sufficient images for a training
_LOG = Path("logs/init.log")
_BODY = 3.0  # seconds of a training's body besides its images: it loads libraries and opens artifacts
EVALUATOR = "train_extractor"  # of a fixed length, so that scores of runs with more and less time compare
_QUICK = 0.01  # seconds of reading an image, up to which the real images are read
_SCENES = 200
_MANY = 2.5  # multiple of the sufficient images, above which larger networks are tried; below `PLENTY`


class _TooLargeError(DarkroomError):
    """Networks of this size do not fit in the memory of this machine."""


def allot(
    ends: Callable[[Mapping[str, float]], float], enough: Mapping[str, int], longest: Mapping[str, int], seconds: float
) -> dict[str, int]:
    """Return the images of each training that fit in the time, in proportion to the sufficient numbers.

    Start with the minimum of each, and lengthen the training that is furthest behind while the whole still fits. Two
    trainings run in parallel, so one off the critical path may exceed its proportion.

    `ends` returns the seconds of the whole DAG from the images of each training. Lengths are multiples of the batch. If
    the minimum does not fit, it is returned.
    """
    lengths = {name: min(_LEAST * enough[name], most) for name, most in longest.items()}
    open_ = set(lengths) if ends(lengths) <= seconds else set()
    while open_:
        name = min(sorted(open_), key=lambda each: lengths[each] / enough[each])
        longer = {**lengths, name: lengths[name] * _STEP}
        if longer[name] > longest[name] or ends(longer) > seconds:
            open_.discard(name)
        else:
            lengths = longer
    return {name: max(2, int(images / BATCH[name])) * BATCH[name] for name, images in lengths.items()}


@dataclass(frozen=True)
class Measured:
    """The time of the DAG on this machine with networks of one size."""

    tier: Tier
    enough: dict[str, int]  # images that each training should see
    lengths: dict[str, int]  # images of each training when it was measured
    longest: dict[str, int]  # images beyond which each is not worth its time
    plan: Planned  # of every stage

    def seconds(self, lengths: Mapping[str, float]) -> float:
        """Return the seconds of the whole DAG with trainings of these lengths."""
        factors = {name: images / self.lengths[name] for name, images in lengths.items()}
        jobs = {
            name: replace(job, seconds=self.job_seconds(name, factors.get(name.partition("@")[0], 1.0)))
            for name, job in self.plan.jobs.items()
        }
        return self.plan.whole.between + side_by_side(jobs, self.plan.needs, self.plan.whole.cores)

    def job_seconds(self, name: str, factor: float) -> float:
        """Return the seconds of a job longer by this factor; its time before the first image is constant."""
        seconds = self.plan.jobs[name].seconds
        fixed = min(seconds, self.plan.whole.between + _BODY)
        return fixed + (seconds - fixed) * factor

    def fit(self, seconds: float) -> dict[str, int]:
        """Return the images of each training that fit in the time; those of the evaluator do not depend on it."""
        most = {name: max(2 * BATCH[name], self.longest[name]) for name in self.lengths if name != EVALUATOR}
        return {**self.lengths, **allot(self.seconds, self.enough, most, seconds)}

    def resized(self, size: int, other: int) -> "Measured":
        """Estimate the same with images of `other` pixels instead of `size`: times in proportion to their areas."""
        factor = (other / size) ** 2
        jobs = {name: replace(job, seconds=self.job_seconds(name, factor)) for name, job in self.plan.jobs.items()}
        return replace(self, plan=replace(self.plan, jobs=jobs))

    def fraction(self, lengths: Mapping[str, int]) -> float:
        """Return the minimum over trainings of the fraction of the sufficient number of images."""
        return min(lengths[name] / self.enough[name] for name in lengths)

    def plenty(self, lengths: Mapping[str, int]) -> bool:
        """Return whether each training sees many times the sufficient number of images, or its maximum."""
        most = {name: min(_MANY * self.enough[name], 0.9 * self.longest[name]) for name in lengths}
        return all(lengths[name] >= most[name] for name in lengths if name != EVALUATOR)


def worth(measured: Measured, lengths: Mapping[str, int]) -> float:
    """Return the size of networks that see about enough images; else how close they come to it."""
    fraction = measured.fraction(lengths)
    return TIERS.index(measured.tier) + 1.0 if fraction >= FEW else fraction


def measure_sizes(
    before: str, facts: Facts, wish: InitOptions, machine: Machine, seconds: float
) -> tuple[list[tuple[Measured, dict[str, int]]], list[str]]:
    """Return the measured networks of one or two sizes, with the trainings that fit, and sentences on skipped sizes.

    Raises:
        DarkroomError: a stage cannot run here, whatever the size.
    """
    allowed = [place for place, tier in enumerate(TIERS) if place == 0 or _may_suffice(facts, wish, tier)]
    at = max(place for place in allowed if place == 0 or TIERS[place].minutes * 60 * MARGIN <= seconds)
    results: list[tuple[Measured, dict[str, int]]] = []
    notes: list[str] = []
    tried: set[int] = set()
    while at not in tried:
        tried.add(at)
        try:
            measured = _measure(before, facts, wish, TIERS[at], machine)
        except DarkroomError as error:
            if not results and not (isinstance(error, _TooLargeError) and at):
                raise
            notes.append(f"Networks of the size `{TIERS[at].name}` are skipped: {error}")
            at = max(0, at - 1)
            continue
        lengths = measured.fit(seconds)
        results.append((measured, lengths))
        fraction = measured.fraction(lengths)
        if fraction < FEW and at:
            at -= 1
        elif measured.plenty(lengths) and at + 1 in allowed:
            at += 1
    return results, notes


def _measure(before: str, facts: Facts, wish: InitOptions, tier: Tier, machine: Machine) -> Measured:
    """Return the cost of each stage with networks of a size, by running it in miniature."""
    print(f"measuring this machine with networks of the size `{tier.name}` …", flush=True)
    least = round(wish.tokenizer * tier.enough["train_generator"])
    enough = {**tier.enough, "train_tokenizer": max(tier.enough["train_tokenizer"], least)}
    lengths = {name: enough[name] // BATCH[name] * BATCH[name] for name in trainings(wish)}
    source = stand_in(wish.source, facts)
    facts = facts if source == wish.source else replace(facts, group=("key", ""))  # scenes have no names
    proposed = propose(facts, replace(wish, source=source), tier, machine, lengths)
    write_bytes(PARAMS, text_of(before, proposed).encode())
    with quiet(_LOG):
        plan = planned(everything=True, history=False)
    assert plan is not None
    for each in plan.plans:
        if each.source == "too large" or (each.source == "not measured" and each.notes):
            kind = _TooLargeError if each.source == "too large" else DarkroomError
            raise kind(f"{each.stage} cannot run here: {'; '.join(each.notes)}")
    plan = replace(plan, whole=replace(plan.whole, cores=machine.cores))  # without those that other processes use
    if source["source"] != wish.source["source"]:
        plan = reading(plan, wish.part, facts)
    return Measured(tier, enough, lengths, {name: longest(name, facts, tier) for name in lengths}, plan)


def stand_in(source: Mapping[str, Any], facts: Facts) -> dict[str, Any]:
    """Return a part on which stages take about the same time in miniature.

    Rendered scenes replace tars, which can only be read whole, many copies, and large photographs.
    """
    if source["source"] != "webdataset" and facts.images > facts.total / 2 and facts.seconds <= _QUICK:
        return dict(source)
    return {"source": "shapes", "path": NO_FILE, "embeddings": NO_FILE, "stop": max(facts.images, _SCENES)}


def reading(plan: Planned, part: str, facts: Facts) -> Planned:
    """Return the plan with the reading time of the real images, if others replaced them."""
    name = f"ingest@{part}"
    job = plan.jobs[name]
    seconds = max(job.seconds, facts.seconds * facts.total / job.threads)  # so many processes read
    return replace(plan, jobs={**plan.jobs, name: replace(job, seconds=seconds)})


def _may_suffice(facts: Facts, wish: InitOptions, tier: Tier) -> bool:
    """Return whether a number of images is sufficient for networks of a size, for any length of training."""
    return all(longest(name, facts, tier) >= FEW * tier.enough[name] for name in trainings(wish))
