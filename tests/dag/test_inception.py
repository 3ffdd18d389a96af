"""FID's network beside the in-domain one, from a file with random weights in the published format."""

import hashlib
import json

import pytest

from dag.sandbox import Sandbox
from models.evaluators.weights import write_random_weights


@pytest.mark.slow
def test_fid_stands_beside_fd_and_only_what_reads_it_runs(fresh: Sandbox):
    weights = fresh.root / "data" / "inception.pth"
    write_random_weights(weights)
    sha256 = hashlib.sha256(weights.read_bytes()).hexdigest()
    before, tokenizer = (
        json.loads((fresh.root / f"metrics/{name}.json").read_text()) for name in ("generator", "tokenizer")
    )
    inception = {"weights": "data/inception.pth", "sha256": sha256}
    fresh.edit({"reference_stats": {"extractors": ["in_domain", "inception"], "inception": inception}})
    with fresh.bodies() as ran:
        fresh.snakemake()
    scores = {"score_tokenizer", "score_tokenizer_samples", "score_generator", "score_decoder", "score_text"}
    stages = {"reference_stats", *scores, "report"}
    assert set(ran) == stages and len(ran) == len(stages) and ran[-1] == "report"
    found = json.loads((fresh.root / "metrics/tokenizer.json").read_text())
    assert found.items() >= tokenizer.items() and set(found) - set(tokenizer) == {"rfid"}
    after = json.loads((fresh.root / "metrics/generator.json").read_text())
    assert after.items() >= before.items()
    own = {f"{name}{error}" for name in ("fid", "inception_kid", "inception_score", "sfid") for error in ("", "_se")}
    assert set(after) - set(before) == own | {"fid_debiased", "sfid_debiased"}
    card = json.loads((fresh.root / "cards/generator.json").read_text())
    extractor = card["protocol"]["extractors"]["inception"]
    assert extractor["sha256"] == sha256 and extractor["dim"] == 2048
    assert any("inception" in note for note in card["notes"])
    assert own - {"fid", "fid_se", "inception_kid", "inception_kid_se"} < set(
        card["baselines"]["held_out"]["inception"]
    )
    page = (fresh.root / "reports/index.html").read_text()
    assert all(f'data-score="{name}"' in page for name in ("fid", "sfid", "inception_score", "diversity"))
    fresh.assert_nothing_to_do()
