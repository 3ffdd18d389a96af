"""The page: one self-contained HTML file. Equal inputs give equal bytes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from darkroom.data.classes import class_warnings
from darkroom.data.passed_over import passed_over_text
from darkroom.metrics import table
from darkroom.metrics.distance_scores import score_names
from darkroom.metrics.held_out_names import held_out_names
from darkroom.metrics.labels import LITTLE
from darkroom.report.charts import error_bars
from darkroom.report.codes import drawn as draw_codes
from darkroom.report.decoder import PAIR_COLUMNS, Conditioned, PairRow, pair_rows, sampling
from darkroom.report.headline import headlines
from darkroom.report.inputs import Inputs
from darkroom.report.metadata import Catalog, Samples
from darkroom.report.numbers import Number, flat, number, percent, widths, written
from darkroom.report.scored import ClipScored, Scored
from darkroom.report.scores import DEBIASED, DISTANCES, Row, distance_rows, rows, value_of
from darkroom.report.trainings import drawn
from darkroom.terminal.tables import bytes_of

# The others train nothing where no score or loss needs them, or where published weights are used; of the kind `none`
# the generator does not, either.
ALWAYS = {"tokenizer", "extractor", "generator"}
_DONE = {"quarantine": "left out", "repair": "mended", "keep": "kept as they are"}
_SPLITS = ("train", "val", "test")
_COPIES = {
    "generator": "Generated images",
    "tokenizer": "The tokenizer's own images",
    "decoder": "Decoded images",
    "text": "Images of captions",
}
_EXTRACTORS = {
    "in_domain": "in-domain extractor",
    "inception": "Inception network",
    "dinov2": "network of DINOv2",
    "clip": "network of CLIP",
}


@dataclass(frozen=True)
class Group:
    """Rows of the table of scores with equal counts, their heading, and a chart of the distances."""

    title: str
    counts: tuple[str, ...]
    rows: Sequence[Row | PairRow]
    aside: str = ""
    distance: str = ""
    chart: Markup | None = None

    @property
    def widths(self) -> dict[str, int]:
        """The characters that its numbers need on each side of the decimal point."""
        return widths(_cells(self.rows))


def _cells(rows: Sequence[Row | PairRow]) -> list[Number]:
    return [cell for row in rows for cell in row.cells if cell]


def conditioned_images(inputs: Inputs) -> Iterator[tuple[str, Conditioned]]:
    """Yield the images sampled from embeddings, and from captions, with their titles."""
    if inputs.decoder is not None:
        yield (
            "Images of embeddings" if inputs.decoder.samples.condition == "image" else "Decoded images",
            inputs.decoder,
        )
    if inputs.text is not None:
        yield "Images of captions", inputs.text


def _bars(row: Row, where: str, others: dict[str, Row | None]) -> Markup | None:
    """Return the chart of a distance with the `others`, each above its noise floor; None where a run has no error."""
    named: list[tuple[str, Number | None, bool]] = []
    for name, each in {"generated": row, **others}.items():
        if each is None or each.run.se is None:
            return None
        named += [(name, each.run, False), ("real, as many", each.unseen, True)]
    named.append(("halves of real", row.halves, True))
    found = [(name, one.value, one.se, real) for name, one, real in named if one and one.se is not None]
    return error_bars(found, f"{row.title} in the {where}, with standard errors")


def groups(inputs: Inputs) -> Iterator[Group]:
    """Yield the groups of the table: one for each extractor, one for the labels, one for the reconstructions."""
    others = {name.removeprefix("Images "): each.scored for name, each in conditioned_images(inputs)}
    if inputs.generator is not None:
        yield from generated(inputs, inputs.generator, "Generated images", others)
    if inputs.own is not None:
        yield from generated(inputs, inputs.own.scored, "The tokenizer's own images", {})
    for title, each in conditioned_images(inputs):
        yield from generated(inputs, each.scored, title, None if inputs.generator else {})
    card = inputs.tokenizer.card
    title = f"Reconstructions of the {card.reference.split} split"
    found = inputs.tokenizer.scores
    codes = {
        "Codes of the train split": "codes of train",
        f"Codes of the {card.reference.split} split": "codes scored",
        "What the codes cost": "cost of codes",
    }
    of_images = set(found) - set(table.of_group(*codes.values()))
    yield Group(title, (f"n = {card.n_fake:,}", "", ""), rows(found, of_images))
    for title, group in codes.items():
        if used := rows(found, table.of_group(group)):
            yield Group(title, ("", "", ""), used, f"{inputs.reconstructions.codes:,} in the codebook")
    yield from clip_group(inputs)


def clip_group(inputs: Inputs) -> Iterator[Group]:
    """Yield the groups of CLIP's scores and of the prior's, where there are some."""
    clip = inputs.clip
    if clip is not None and (found := rows(clip.scores, table.of_group("clip"))):
        aside, split = f"{clip.card.protocol.captions:,} captions that differ", clip.card.protocol.reference.split
        if constant := clip.card.baselines.get("zero_shot_accuracy"):
            aside += f", a constant answer gets {number(constant.constant).text}"
        yield Group(f"CLIP on the {split} split", (f"n = {clip.card.protocol.images:,}", "", ""), found, aside)
    if inputs.prior is not None and (found := rows(inputs.prior.scores, table.of_group("prior"))):
        yield Group(f"Prior on the {inputs.prior.split} split", (f"n = {inputs.prior.images:,}", "", ""), found)


def pair_groups(inputs: Inputs) -> list[Group]:
    """Return the groups of the table that compares images with their originals and captions; none without any."""
    found = [(title, each, list(pair_rows(each.scored))) for title, each in conditioned_images(inputs)]
    return [
        Group(f"{title}, {each.samples.split} split", (f"n = {each.samples.images:,}",), rows)
        for title, each, rows in found
        if rows
    ]


def _notes(inputs: Inputs) -> list[str]:
    """Return the notes of the cards, each note once; notes on conditioned images name them."""
    plain = [inputs.generator, inputs.own.scored if inputs.own else None, inputs.tokenizer]
    notes = [note for each in plain if each for note in each.card.notes]
    return list(
        dict.fromkeys(
            [*notes, *(f"{name}: {note}" for name, of in conditioned_images(inputs) for note in of.scored.card.notes)]
        )
    )


def _beside_floor(name: str, extractor: str, made: Scored) -> Row | None:
    """Return a distance of some images, beside it what as many real images score; None where it was not measured."""
    unseen = score_names(extractor, made.card.baselines.held_out.get(extractor, {}))
    run = value_of(name, made.scores)
    return None if run is None else Row(name, run, value_of(name, unseen))


def generated(inputs: Inputs, made: Scored, title: str, others: dict[str, Scored] | None = None) -> Iterator[Group]:
    """Yield the groups of generated images: one for each extractor, one for each group of metrics.

    The distances have a chart, together with those of `others`; None: no chart.
    """
    scores, n = made.scores, f"n = {made.card.n_fake:,}"
    for extractor, floor in inputs.reference.extractors.items():
        unseen = made.card.baselines.held_out.get(extractor, {})
        found = distance_rows(extractor, scores, unseen, floor.halves)
        name = _EXTRACTORS[extractor]
        chart = None
        for row in found:
            if row.name == DEBIASED[extractor] and others is not None:
                chart = _bars(row, name, {of: _beside_floor(row.name, extractor, each) for of, each in others.items()})
        aside = f"{floor.dim:,} features, {floor.n:,} images in the reference"
        distance = f"{DISTANCES[extractor]} in the {name}"
        # The two halves are the even and the odd rows of the stored features.
        of_unseen = f"n = {unseen['n']:,.0f}" if unseen else "too few"
        counts = (n, of_unseen, f"n = {floor.kid_n // 2:,} and {(floor.kid_n + 1) // 2:,}")
        yield Group(f"{title}, {name}", counts, found, aside, distance, chart)
        if trained := made.card.baselines.train.get(extractor):
            real = score_names(extractor, held_out_names(trained))
            against = [replace(row, unseen=value_of(row.name, real)) for row in rows(scores, real)]
            split = inputs.reference.held_out
            aside = f"as reference, which no training saw; beside it images of the {inputs.reference.split} split"
            yield Group(f"{title}, {name}, the {split} split", (n, f"n = {trained['n']:,.0f}", ""), against, aside)
    measured_of = [score for metric in table.SAMPLE_METRICS for score in metric.scores]
    if measured := [_with_real(row, made) for row in rows(scores, table.of_group("diversity"))]:
        taken = made.card.protocol.diversity
        of_pairs = (f"{taken.pairs:,} pairs", f"{taken.pairs_held_out:,} pairs", "") if taken else ("", "", "")
        yield Group(f"{title}, diversity", of_pairs, measured, "images of one class")
    for group in dict.fromkeys(score.group for score in (*measured_of, *table.BITS)):
        if measured := [_with_real(row, made) for row in rows(scores, table.of_group(group))]:
            constant = made.card.baselines.label_accuracy if group == "labels" else None
            aside = f"a constant answer gets {number(constant.constant).text}" if constant else ""
            real = made.card.baselines.held_out.get("in_domain", {}) if group == "manifold" else {}
            yield Group(f"{title}, {group}", (n, f"n = {real['n']:,.0f}" if real else "", ""), measured, aside)


def _with_real(row: Row, made: Scored) -> Row:
    """Return a row with what held-out real images of the same classes get, where that is known."""
    floor = made.card.baselines.held_out.get("in_domain", {})
    for known in (floor, made.card.baselines.diversity):
        if row.name in known:
            return replace(row, unseen=value_of(row.name, known))
    real = made.card.baselines.label_accuracy
    if real is None or real.held_out is None:
        return row
    if row.name == "label_accuracy":
        return replace(row, unseen=number(real.held_out, real.held_out_se))
    if row.name == "confident" and real.held_out_confident is not None:
        return replace(row, unseen=number(real.held_out_confident))
    return row


# Of samples that were not asked to be of a class: what they were made of.
_ASKED = {
    "none": "Made of nothing but noise",
    "image": "Each made of the embedding of the image that the caption below belongs to",
    "text": "Each made of the caption below it",
    "tokens": "Each made of the caption below it",
    "caption": "Each made of the caption below it",
}


def _columns(samples: Samples) -> list[str]:
    """Return the classes of the columns of a grid, from the left: the first ten that have images; none of one."""
    found = _asked_for(samples)[:10]
    return found if len(found) > 1 else []


def _asked_for(samples: Samples) -> list[str]:
    """Return the classes that have images."""
    return [name for name in samples.classes if samples.counts.get(name)]


def _in_grid(inputs: Inputs, names: Sequence[str]) -> int:
    """Return the number of images in the grid of samples: of each class in it as many as there are, or a column."""
    rows = inputs.sample_grid.rows(len(names)) if inputs.sample_grid else 0
    return sum(min(rows, inputs.samples.counts[name]) for name in names)


@dataclass(frozen=True)
class DamageRow:
    """The number of samples of a part with one action and one reason; `done`: the action as text."""

    part: str
    action: str
    done: str
    reason: str
    samples: int


def damage_rows(catalog: Catalog) -> list[DamageRow]:
    """Return the rows by part, action, and descending number of samples."""
    return [
        DamageRow(part.name, action, done, reason, samples)
        for part in catalog.parts
        for action, done in _DONE.items()
        for reason, samples in sorted(getattr(part.quarantine, action).items(), key=lambda pair: (-pair[1], pair[0]))
    ]


def passed_over_rows(catalog: Catalog) -> list[tuple[str, str]]:
    """Return what was passed over, in no list: the part and a line of text each."""
    return [(part.name, line) for part in catalog.parts for line in passed_over_text(part.passed_over)]


def range_of(spread: Sequence[int]) -> str:
    """Return minimum, median and maximum in pixels as text; one number where they are equal."""
    if not spread:
        return ""
    least, median, greatest = spread
    return f"{least:,} pixels" if least == greatest else f"{least:,} to {greatest:,} pixels, median {median:,}"


def render(title: str, inputs: Inputs) -> str:
    """Return the page as HTML, from the template beside this file; all texts but the charts are escaped."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["written"] = written
    environment.filters["bytes"] = bytes_of
    environment.filters["range"] = range_of
    environment.filters["sampling"] = sampling
    environment.filters["percent"] = percent
    environment.filters["counted"] = lambda count, noun: f"{count:,} {noun}{'' if count == 1 else 's'}"
    scored = list(groups(inputs))
    pairs = pair_groups(inputs)
    shown = [row for group in (*scored, *pairs) for row in group.rows]
    # Columns without a number in any row are left out.
    columns_used = [at for at in range(len(PAIR_COLUMNS)) if any(row.cells[at] for each in pairs for row in each.rows)]
    train = inputs.catalog.counts["train"]
    by_class = inputs.samples.condition == "class"
    always = ALWAYS if inputs.generator else ALWAYS - {"generator"}
    cards: dict[str, Scored | ClipScored | None] = {
        "Generated images": inputs.generator,
        "The tokenizer's own images": inputs.own.scored if inputs.own else None,
        "Reconstructions": inputs.tokenizer,
        **{name: each.scored for name, each in conditioned_images(inputs)},
        "CLIP": inputs.clip,
    }
    in_grid = _columns(inputs.samples) if by_class else []
    alone = "" if in_grid else f"All of the class {', '.join(_asked_for(inputs.samples))}"
    asked = _ASKED.get(inputs.samples.condition, alone)
    return environment.get_template("page.html").render(
        title=title,
        inputs=inputs,
        headlines=headlines(inputs),
        groups=scored,
        pairs=pairs,
        # Without generated images there is no distance, and so no noise floor.
        columns=3 if any(cell for group in scored for row in group.rows for cell in row.cells[1:]) else 1,
        pair_columns={at: PAIR_COLUMNS[at] for at in columns_used},
        notes=_notes(inputs),
        copies={_COPIES[name]: found for name, found in inputs.copies.items()},
        conditioned=dict(conditioned_images(inputs)),
        whole=widths(_cells(shown))["whole"],
        # By title: a score of two splits is explained once.
        meanings={
            score.title or name: score.meaning
            for name, score in table.scores().items()
            if name in {row.name for row in shown}
        },
        evaluator=inputs.reference.evaluator,
        never=[name for name, of in inputs.reference.evaluator.by_class.items() if not of.accuracy]
        if inputs.reference.evaluator
        else [],
        little=LITTLE,
        commonest=max(train.values(), default=0) / max(1, sum(train.values())),
        in_grid=in_grid,
        own_columns=_columns(inputs.own.samples) if inputs.own else [],
        shown=_in_grid(inputs, in_grid) if in_grid else 0,
        asked=asked,
        triples=inputs.reconstruction_grid.grid(3 * inputs.reconstructions.images),
        codes=draw_codes(inputs.codes, inputs.reconstructions.split) if inputs.codes else None,
        splits=_SPLITS,
        damage=damage_rows(inputs.catalog),
        passed_over=passed_over_rows(inputs.catalog),
        class_warnings=class_warnings(inputs.catalog.counts),
        most=max((sum(of[name] for of in inputs.catalog.counts.values()) for name in inputs.catalog.classes), default=0)
        or 1,
        # Some networks are trained only where they are needed.
        curves=[drawn(each) for each in inputs.trainings if each.name in always or each.train.points],
        cards={name: list(flat(each.whole)) for name, each in cards.items() if each},
    )
