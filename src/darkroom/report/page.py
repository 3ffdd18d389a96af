"""The page: one self-contained HTML file. Equal inputs give equal bytes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from darkroom.data.catalog import class_warnings, leakage_warnings
from darkroom.metrics import table
from darkroom.metrics.labels import LITTLE
from darkroom.metrics.sample_scores import ALONE, held_out_names, score_names
from darkroom.report.decoder import PAIR_COLUMNS, Conditioned, pair_rows, sampling
from darkroom.report.headline import headlines
from darkroom.report.inputs import Inputs
from darkroom.report.limits import limit
from darkroom.report.metadata import Samples
from darkroom.report.numbers import damage_rows, flat, number, passed_over_rows, percent, range_of, written
from darkroom.report.scores import ClipScored, Row, Scored, rows, value_of
from darkroom.report.trainings import drawn, with_keys
from darkroom.terminal.numbers import bytes_of, counted

# The others are not trained if no score or loss needs them, or if published weights are used. A generator of the kind
# `none` is not trained either.
ALWAYS = {"tokenizer", "extractor", "generator"}
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
    """Rows of the table of scores with equal counts, and their heading."""

    title: str
    counts: tuple[str, ...]
    rows: Sequence[Row]
    aside: str = ""


def conditioned_images(inputs: Inputs) -> Iterator[tuple[str, Conditioned]]:
    """Yield the images sampled from embeddings, and from captions, with their titles."""
    if inputs.decoder is not None:
        embedded = inputs.decoder.samples.condition == "image"
        yield "Images of embeddings" if embedded else "Decoded images", inputs.decoder
    if inputs.text is not None:
        yield "Images of captions", inputs.text


def groups(inputs: Inputs) -> Iterator[Group]:
    """Yield the groups of the table: one for each extractor, one for the labels, one for the reconstructions."""
    if inputs.generator is not None:
        yield from generated(inputs, inputs.generator, "Generated images")
    if inputs.own is not None:
        yield from generated(inputs, inputs.own.scored, "The tokenizer's own images")
    for title, each in conditioned_images(inputs):
        yield from generated(inputs, each.scored, title)
    card = inputs.tokenizer.card
    title = f"Reconstructions of the {card.split} split"
    scores = inputs.tokenizer.scores
    codes = {
        "Codes of the train split": "codes of train",
        f"Codes of the {card.split} split": "codes scored",
        "What the codes cost": "cost of codes",
    }
    of_images = set(scores) - set(table.of_group(*codes.values()))
    yield Group(title, (f"n = {card.n_fake:,}", "", ""), rows(scores, of_images))
    for title, group in codes.items():
        if used := rows(scores, table.of_group(group)):
            yield Group(title, ("", "", ""), used, f"{inputs.reconstructions.codes:,} in the codebook")
    yield from clip_group(inputs)


def clip_group(inputs: Inputs) -> Iterator[Group]:
    """Yield the groups of CLIP's scores and of the prior's, if any."""
    clip = inputs.clip
    if clip is not None and (score_rows := rows(clip.scores, table.of_group("clip"))):
        protocol = clip.card.protocol
        aside = f"{protocol['captions']:,} captions that differ"
        if constant := clip.card.baselines.get("zero_shot_accuracy"):
            aside += f", a constant answer gets {number(constant['constant']).text}"
        title = f"CLIP on the {protocol['reference']['split']} split"
        yield Group(title, (f"n = {protocol['images']:,}", "", ""), score_rows, aside)
    if inputs.prior is not None and (score_rows := rows(inputs.prior.scores, table.of_group("prior"))):
        yield Group(f"Prior on the {inputs.prior.split} split", (f"n = {inputs.prior.images:,}", "", ""), score_rows)


def pair_groups(inputs: Inputs) -> list[Group]:
    """Return the groups of the table that compares images with their originals and captions."""
    return [
        Group(f"{title}, {each.samples.split} split", (f"n = {each.samples.images:,}",), pairs)
        for title, each in conditioned_images(inputs)
        if (pairs := list(pair_rows(each.scored)))
    ]


def _notes(inputs: Inputs) -> list[str]:
    plain = [inputs.generator, inputs.own.scored if inputs.own else None, inputs.tokenizer]
    notes = [note for each in plain if each for note in each.card.notes]
    notes += [f"{name}: {note}" for name, of in conditioned_images(inputs) for note in of.scored.card.notes]
    return list(dict.fromkeys(notes))


def generated(inputs: Inputs, scored: Scored, title: str) -> Iterator[Group]:
    """Yield the groups of generated images: one for each extractor, one for each group of metrics."""
    scores, n = scored.scores, f"n = {scored.card.n_fake:,}"
    for extractor, floor in inputs.reference.extractors.items():
        unseen = scored.card.baselines.held_out.get(extractor, {})
        of_halves = score_names(extractor, floor.halves)
        names = {*of_halves, *ALONE.get(extractor, ())}
        feature_rows = rows(scores, names, score_names(extractor, unseen), of_halves)
        name = _EXTRACTORS[extractor]
        aside = f"{floor.dim:,} features, {floor.n:,} images in the reference"
        # The two halves are the even and the odd rows of the stored features.
        of_unseen = f"n = {unseen['n']:,.0f}" if unseen else "too few"
        counts = (n, of_unseen, f"n = {floor.kid_n // 2:,} and {(floor.kid_n + 1) // 2:,}")
        yield Group(f"{title}, {name}", counts, feature_rows, aside)
        if trained := scored.card.baselines.train.get(extractor):
            real = score_names(extractor, held_out_names(trained))
            against = rows(scores, real, real)
            split = inputs.reference.held_out
            aside = f"as reference, which no training saw; beside it images of the {inputs.reference.split} split"
            yield Group(f"{title}, {name}, the {split} split", (n, f"n = {trained['n']:,.0f}", ""), against, aside)
    measured_of = [score for metric in table.SAMPLE_METRICS for score in metric.scores]
    if measured := [_with_real(row, scored) for row in rows(scores, table.of_group("diversity"))]:
        taken = scored.card.protocol.diversity
        of_pairs = (f"{taken['pairs']:,} pairs", f"{taken['pairs_held_out']:,} pairs", "") if taken else ("", "", "")
        yield Group(f"{title}, diversity", of_pairs, measured, "images of one class")
    for group in dict.fromkeys(score.group for score in (*measured_of, *table.BITS)):
        if measured := [_with_real(row, scored) for row in rows(scores, table.of_group(group))]:
            constant = scored.card.baselines.label_accuracy if group == "labels" else None
            aside = f"a constant answer gets {number(constant.constant).text}" if constant else ""
            real = scored.card.baselines.held_out.get("in_domain", {}) if group == "manifold" else {}
            yield Group(f"{title}, {group}", (n, f"n = {real['n']:,.0f}" if real else "", ""), measured, aside)


def _with_real(row: Row, scored: Scored) -> Row:
    """Return a row with the score of held-out real images of the same classes, if known."""
    baselines, real = scored.card.baselines, scored.card.baselines.label_accuracy
    beside = value_of(row.name, baselines.held_out.get("in_domain")) or value_of(row.name, baselines.diversity)
    if beside is None and real is not None and real.held_out is not None:
        if row.name == "label_accuracy":
            beside = number(real.held_out, real.held_out_se)
        elif row.name == "confident" and real.held_out_confident is not None:
            beside = number(real.held_out_confident)
    return row if beside is None else replace(row, beside=(beside, row.beside[1]))


# The origin of samples without a class, by their condition.
_ORIGINS = {
    "none": "Made of nothing but noise",
    "image": "Each made of the embedding of the image that the caption below belongs to",
    "text": "Each made of the caption below it",
    "tokens": "Each made of the caption below it",
    "caption": "Each made of the caption below it",
}


def _columns(samples: Samples) -> list[str]:
    names = [name for name in samples.classes if samples.counts.get(name)]
    return names[:10] if len(names) > 1 else []


def _grids(inputs: Inputs) -> dict[str, Any]:
    """Return the template's values for grids of samples: classes of the columns, images shown, origin of samples."""
    samples, own = inputs.samples, inputs.own
    columns = _columns(samples) if samples.condition == "class" else []
    present = ", ".join(name for name in samples.classes if samples.counts.get(name))
    # The grid shows all images of a class, or as many as fit in a column.
    rows = inputs.sample_grid.rows(len(columns)) if inputs.sample_grid and columns else 0
    return {
        "in_grid": columns,
        "shown": sum(min(rows, samples.counts[name]) for name in columns),
        "origin": _ORIGINS.get(samples.condition, "" if columns else f"All of the class {present}"),
        "own_columns": _columns(own.samples) if own else [],
        "triples": inputs.reconstruction_grid.grid(3 * inputs.reconstructions.images),
    }


def _tables(inputs: Inputs) -> dict[str, Any]:
    scored, pairs = list(groups(inputs)), pair_groups(inputs)
    shown = [row for group in (*scored, *pairs) for row in group.rows]
    names = {row.name for row in shown}
    # Columns without a number in any row are left out.
    columns_used = [at for at in range(len(PAIR_COLUMNS)) if any(row.cells[at] for each in pairs for row in each.rows)]
    return {
        "groups": scored,
        "pairs": pairs,
        # Without generated images there is no distance, and so no noise floor.
        "columns": 3 if any(cell for group in scored for row in group.rows for cell in row.cells[1:]) else 1,
        "pair_columns": {at: PAIR_COLUMNS[at] for at in columns_used},
        # By title: a score of two splits is explained once.
        "meanings": {score.title or name: score.meaning for name, score in table.scores().items() if name in names},
        "notes": _notes(inputs),
    }


def _cards(inputs: Inputs) -> dict[str, list[tuple[str, str]]]:
    cards: dict[str, Scored | ClipScored | None] = {
        "Generated images": inputs.generator,
        "The tokenizer's own images": inputs.own.scored if inputs.own else None,
        "Reconstructions": inputs.tokenizer,
        **{name: each.scored for name, each in conditioned_images(inputs)},
        "CLIP": inputs.clip,
    }
    return {name: list(flat(each.whole)) for name, each in cards.items() if each}


def _limit(inputs: Inputs) -> str:
    """Return the sentence on what limits the generator as HTML; "" if it has no distance."""
    if inputs.generator is None:
        return ""
    trainings = {training.name: training for training in inputs.trainings}
    verdict = limit(inputs.generator.scores, inputs.generator.whole, inputs.tokenizer.scores, trainings)
    return with_keys(verdict.text) if verdict else ""


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
    environment.filters |= {"written": written, "bytes": bytes_of, "range": range_of}
    environment.filters |= {"sampling": sampling, "percent": percent, "counted": counted}
    counts, evaluator = inputs.catalog.counts, {"by_class": {}} | (inputs.reference.evaluator or {})
    always = ALWAYS if inputs.generator else ALWAYS - {"generator"}
    return environment.get_template("page.html").render(
        title=title,
        inputs=inputs,
        headlines=headlines(inputs),
        limit=_limit(inputs),
        copies={_COPIES[name]: nearest for name, nearest in inputs.nearest.items() if nearest.facts.images},
        conditioned=dict(conditioned_images(inputs)),
        evaluator=evaluator,
        never=[name for name, of in evaluator["by_class"].items() if not of["accuracy"]],
        little=LITTLE,
        splits=_SPLITS,
        damage=damage_rows(inputs.catalog),
        passed_over=passed_over_rows(inputs.catalog.parts),
        class_warnings=class_warnings(counts),
        leakage_warnings=leakage_warnings(inputs.catalog.leakage),
        most=max((sum(of[name] for of in counts.values()) for name in inputs.catalog.classes), default=0) or 1,
        # Some networks are trained only where they are needed.
        curves=[drawn(each) for each in inputs.trainings if each.name in always or each.train.points],
        cards=_cards(inputs),
        **_grids(inputs),
        **_tables(inputs),
    )
