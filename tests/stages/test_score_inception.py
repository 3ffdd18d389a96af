"""Inception in the DAG: one forward pass gives FID, sFID and the Inception Score, each beside its floor."""

from math import ceil
from pathlib import Path

import pytest
import torch

from darkroom.artifacts.manifest import open_artifact, sha256_file
from darkroom.data import catalog_writer
from darkroom.data.reader import ImageShards
from darkroom.metrics.frechet import few_jackknife
from darkroom.metrics.inception_score import InceptionScore
from darkroom.metrics.reference import Reference, moments_of
from darkroom.models.evaluators import inception as network
from darkroom.models.evaluators.inception import Inception
from darkroom.params import reference_stats as of_reference
from darkroom.params.section import validate
from darkroom.stages import reference_stats
from data.frames import LEAKING, TWINS
from helpers import run
from models.evaluators.weights import write_random_weights
from stages.test_score_decoder import ALWAYS, HOW, PAIRS, clone, made, score, write_samples  # noqa: F401

OWN = {f"{name}{error}" for name in ("fid", "inception_kid", "sfid", "inception_score") for error in ("", "_se")}
OWN |= {"fid_debiased", "sfid_debiased"}


def test_one_forward_pass_gives_every_score_of_inception(clone, monkeypatch):  # noqa: F811
    # The smallest images that its convolutions take, so a sixteenth of the time: Mixed_6d is 3 by 3 then, not 17 by 17.
    monkeypatch.setattr(network, "SIDE", 75)
    monkeypatch.setattr(Inception, "widths", (2048, 3 * 3 * 7, 1008))
    path = write_random_weights(Path("inception.pth"))
    inception = {"weights": str(path), "sha256": sha256_file(path)}
    settings = {**HOW, "split": "train", "held_out": "test", "kid_images": 100, "inception": inception}
    settings["extractors"] = ["in_domain", "inception"]
    passes: list[torch.Tensor] = []
    outputs = Inception.outputs
    monkeypatch.setattr(
        Inception, "outputs", lambda self, images: passes.append(outputs(self, images).clone()) or passes[-1]
    )
    monkeypatch.setattr(catalog_writer, "measure_leakage", lambda *_: LEAKING)
    catalog_writer.write_catalog(Path("data/catalog"), ["one"])
    reference_stats.run(validate(of_reference.Params, {"run": run().model_dump(), "reference_stats": settings}))
    train, test = (ImageShards.open_parts(["one"], split) for split in ("train", "test"))
    of_train = ceil(len(train) / 8)
    assert [len(rows) for rows in passes] == [8] * (of_train + ceil(len(test) / 8))
    widths = Inception.widths
    _, real, _ = torch.cat(passes[:of_train])[: len(train)].split(widths, dim=1)
    write_samples(change=lambda key, image: 255 - image)
    passes.clear()
    scores, card = score(networks={"inception": inception})
    assert [len(rows) for rows in passes] == [8, 8] and set(scores) == ALWAYS | PAIRS | OWN
    assert set(card["formulas"]) == set(scores) - {"n"}
    assert card["baselines"]["leakage"] == LEAKING and TWINS in card["notes"]
    _, spatial, logits = torch.cat(passes)[:12].split(widths, dim=1)
    places = Reference.load(Path("data/reference"), "inception", inception["sha256"]).spatial
    assert places is not None and places.kid_within is None and places.n == len(train)
    torch.testing.assert_close(places.mean, moments_of(real).mean, rtol=1e-4, atol=1e-6)
    assert scores["sfid"] == pytest.approx(
        few_jackknife(places.moments, places.root, spatial, torch.zeros(12)).value, rel=1e-4
    )
    exact = InceptionScore(1008)
    exact.update(logits, torch.zeros(12, dtype=torch.int64))
    assert scores["inception_score"] == pytest.approx(exact._score(torch.arange(1)), rel=1e-5)
    floor = card["baselines"]["held_out"]["inception"]
    assert {"fd", "kid_se", "sfid", "sfid_debiased", "sfid_se", "inception_score", "inception_score_se"} < set(floor)
    facts = open_artifact(Path("data/reference"), "reference")["extractors"]["inception"]
    assert {"sfid", "inception_score"} < set(facts["held_out"]) and "sfid_debiased" in facts["halves"]
    assert "inception_score" not in facts["halves"]  # it sees no other half
