"""params.yaml as `darkroom init` writes it: values, comments behind them, and nothing lost."""

import pytest
import yaml

from darkroom.errors import DarkroomError
from darkroom.tools.init.request import Request
from darkroom.tools.init.writing import BEFORE, LAST, Choice, begin_from, header, restored, text_of

CHOICES = {
    "parts.mine.source": Choice("digits", "1,797 images"),
    "parts.mine.path": Choice("data/none"),
    "parts.mine.embeddings": Choice("data/none"),
    "train_tokenizer.parts": Choice(None, "all"),
    "train_tokenizer.training.images": Choice(64000, "often"),
    "train_tokenizer.training.precision": Choice("bf16", "fewer seconds"),
    "train_tokenizer.training.threads": Choice(1),
    "report.title": Choice(None),
}


def test_values_and_reasons_stand_where_they_belong(clone):
    before = (clone / "params.yaml").read_text()
    text = text_of(before, CHOICES)
    values = yaml.safe_load(text)
    assert list(values["parts"]) == ["mine"] and values["parts"]["mine"]["source"] == "digits"
    assert values["train_tokenizer"]["parts"] is None
    assert values["train_tokenizer"]["training"]["images"] == 64000
    lines = text.splitlines()
    assert "    source: digits        # 1,797 images" in lines
    assert "    images: 64000         # often" in lines
    assert "    precision: bf16       # fewer seconds" in lines
    assert "    threads: 1" in lines
    assert "    log_every: 320" in lines
    # New keys stand in the order in which they were chosen.
    training = lines.index("  training:", lines.index("train_tokenizer:"))
    assert [line.split(":")[0].strip() for line in lines[training + 1 : training + 3]] == ["precision", "threads"]


def test_other_sections_and_their_comments_stay(clone):
    before = (clone / "params.yaml").read_text()
    text = text_of(before, CHOICES)

    def section(of: str, name: str) -> str:
        return of[of.index(f"\n{name}:") :].split("\n\n")[0]

    for name in ("ingest", "training", "train_decoder", "sample_generator", "train_prior"):
        assert section(text, name) == section(before, name)
    assert before.split("\nparts:")[0] in text  # the comments of the head


def test_what_would_not_be_valid_is_refused(clone):
    with pytest.raises(DarkroomError, match="train_tokenizer"):
        text_of((clone / "params.yaml").read_text(), {**CHOICES, "train_tokenizer.training.images": Choice(-1)})


def test_the_head_is_comment_whatever_stands_in_it(clone):
    request = Request("/my pictures/\x85\u2028ü'", 5, generator="none", size=64)
    text = text_of((clone / "params.yaml").read_text(), CHOICES, header(request, "two\x1b[31m\n\nlines"))
    assert text.splitlines()[0].startswith("# Written by `darkroom init '/my pictures/")
    assert "--minutes 5 --generator none --size 64`." in text.splitlines()[0]
    assert yaml.safe_load(text)["parts"].keys() == {"mine"}


def test_a_second_call_begins_where_the_first_did(clone):
    before = begin_from()
    with restored() as keep:
        keep(text_of(before, CHOICES))
    assert begin_from() == before
    # In another clone, to which params.yaml came by git, without `.darkroom`.
    BEFORE.unlink()
    values = begin_from()
    assert values.count("# Written by") == 0
    assert text_of(values, CHOICES) == (clone / "params.yaml").read_text()


def test_what_it_began_from_may_be_older_than_the_schema(clone):
    with restored() as keep:
        keep(text_of(begin_from(), CHOICES))
    BEFORE.write_text(f"{BEFORE.read_text()}\ntrain_dit:\n  steps: 5\n")
    values = begin_from()
    assert "train_dit:" not in values and yaml.safe_load(values)["train_tokenizer"]["training"]["images"] == 64000
    assert text_of(values, CHOICES) == (clone / "params.yaml").read_text()


def test_nothing_of_a_persons_own_is_lost(clone):
    path = clone / "params.yaml"
    mine = path.read_text().replace("guidance: 2.0", "guidance: 3.0", 1)
    path.write_text(mine)
    with restored() as keep:
        path.write_text("measured")
        assert LAST.read_text() == mine and BEFORE.read_text() == mine  # also if the process is killed now
        keep(text_of(mine, CHOICES))
    edited = path.read_text().replace("images: 64000", "images: 32000")
    path.write_text(edited)
    with restored() as keep:
        keep("other")
    assert LAST.read_text() == edited and BEFORE.read_text() == mine


@pytest.mark.parametrize("error", [KeyboardInterrupt, DarkroomError])
def test_params_are_as_they_were_after_an_error(clone, error):
    path = clone / "params.yaml"
    before = path.read_bytes()
    with pytest.raises(error), restored():
        path.write_text("measured")
        raise error
    assert path.read_bytes() == before
