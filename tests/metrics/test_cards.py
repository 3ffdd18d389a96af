import json
from typing import Any

import pytest

from darkroom.metrics import cards as libraries
from darkroom.metrics.cards import score_card
from darkroom.metrics.table import scores


def card(**changes: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "scores": {"fd": 1.0, "fd_se": 0.1, "kid": 0.0, "n": 1000},
        "extractors": {"in_domain": {"sha256": "ab" * 32, "resize": "none", "dim": 64, "n": 1400, "kid_n": 1400}},
        "reference_id": "cd" * 32,
        "reference_split": "train",
        "n_fake": 1000,
        "classes": "frequency",
        "blocks": 10,
        "sampler": {"solver": "euler", "steps": 25, "guidance": 1.5, "weights": "ema", "seed": 1},
    }
    return score_card(**{**metadata, **changes})


def test_too_few_images_have_a_note_and_no_blocks() -> None:
    few, some = card(n_fake=7), card(n_fake=8)
    assert (few["protocol"]["blocks"], some["protocol"]["blocks"]) == (1, 4)
    assert "too few images (7) for standard errors, so nothing follows from a difference" in few["notes"]
    assert not any("too few" in note for note in some["notes"])


def test_holds_the_whole_protocol() -> None:
    found = json.loads(json.dumps(card()))
    assert sorted(found) == ["baselines", "formulas", "notes", "protocol", "treatment"]
    protocol, treatment = found["protocol"], found["treatment"]
    assert protocol["extractors"]["in_domain"]["sha256"] == "ab" * 32
    assert protocol["extractors"]["in_domain"]["resize"] == "none"
    assert protocol["reference"] == {"id": "cd" * 32, "split": "train"}
    assert (protocol["n_fake"], protocol["blocks"], protocol["classes"]) == (1000, 10, "frequency")
    assert (treatment["seed"], treatment["sampler"]["steps"]) == (1, 25)
    assert "uint8" in protocol["quantisation"]
    assert sorted(protocol["libraries"]) == ["numpy", "torch", "torch-fidelity", "torchmetrics"]
    assert sorted(found["formulas"]) == ["fd", "fd_se", "kid"]


@pytest.mark.parametrize(
    ("name", "formula"), [("rfd", "fd"), ("fid", "fd"), ("fid_se", "fd_se"), ("inception_kid", "kid")]
)
def test_scores_of_other_names_get_their_formula(name: str, formula: str) -> None:
    assert card(scores={name: 1.0})["formulas"] == {name: card(scores={formula: 1.0})["formulas"][formula]}


def test_too_few_samples_are_noted() -> None:
    inception = {"inception": {"sha256": "ef" * 32, "dim": 2048, "n": 1400, "kid_n": 1400}}
    assert card()["notes"] == []
    (note,) = card(extractors=inception)["notes"]
    assert "inception: 1000 samples are fewer than twice its 2048 features" in note


def test_the_build_of_a_library_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "version", lambda name: "2.15.0+cu130")
    assert set(libraries.library_versions().values()) == {"2.15.0"}


def test_every_score_of_a_card_has_a_formula_and_a_meaning() -> None:
    """But those of a prior, which stand in its manifest."""
    for name, score in scores().items():
        assert score.meaning and score.name == name
        assert card(scores={name: 1.0})["formulas"] == ({} if score.group == "prior" else {name: score.formula})
