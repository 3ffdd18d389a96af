"""What a change of params.yaml reaches in the real DAG: asked of DVC, without a run."""

from typing import Any

import pytest

from dag.sandbox import Sandbox
from darkroom.tools.plan.plan import ask_dvc

DVC_FOLDERS = ("DVC_SITE_CACHE_DIR", "DVC_GLOBAL_CONFIG_DIR", "DVC_SYSTEM_CONFIG_DIR")

SCORES = {"score_decoder", "score_text"}
SAMPLES = {"sample_decoder", "sample_text", *SCORES}
PIXELS = {"train_tokenizer", "score_tokenizer", "sample_tokenizer", "score_tokenizer_samples", "train_generator"}
PIXELS |= {"sample_generator", "score_generator", "encode_latents@first", "encode_latents@second", "train_classifier"}
PIXELS |= {"train_distilled"}
TEXTS = {"train_decoder@base", "train_prior", *SAMPLES}
EMBEDDINGS = {"embed_clip@first", "embed_clip@second"}

# What is changed, and all stages that then are to run, beside the page.
CHANGES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "what changes no result": ({"run": {"device": "auto", "workers": 1, "micro_batch": 8, "keep": 3}}, set()),
    "guidance": ({"sample_generator": {"dit": {"guidance": 3.0}}}, {"sample_generator", "score_generator"}),
    "generator": (
        {"train_generator": {"dit": {"model": {"depth": 2}}}},
        {"train_generator", "train_distilled", "sample_generator", "score_generator"},
    ),
    "tokenizer": ({"train_tokenizer": {"kl": {"kl_weight": 0.01}}}, PIXELS),
    "clip": ({"train_clip": {"training": {"seed": 9}}}, {"train_clip", *EMBEDDINGS, *TEXTS}),
    "base": ({"train_decoder": {"unets": {"base": {"model": {"layers": 2}}}}}, {"train_decoder@base", *SAMPLES}),
    "sampling": ({"sample_decoder": {"common": {"steps": 3}}}, SAMPLES),
    "pictures": ({"sample_decoder": {"pictures": {"inpainted": 2}}}, {"sample_decoder", "score_decoder"}),
    "prior": ({"train_prior": {"model": {"depth": 2}}}, {"train_prior", "sample_text", "score_text"}),
    "texts": ({"sample_text": {"prior": {"guidance": 2.0}}}, {"sample_text", "score_text"}),
    "blocks": ({"score_decoder": {"blocks": 6}}, {"score_decoder"}),
    "judge": ({"score_decoder": {"clip": "data/none"}}, SCORES),
    "attributes": ({"score_decoder": {"attributes": "scenes"}}, {"train_scene_reader", *SCORES}),
    "reader": ({"train_scene_reader": {"held_out": 40}}, {"train_scene_reader", *SCORES}),
    "text blocks": ({"score_text": {"blocks": 6}}, {"score_text"}),
}


@pytest.fixture(scope="module")
def sandbox(committed: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    """A copy with everything up to date, in which each test changes params.yaml and puts it back."""
    return committed.copy(tmp_path_factory.mktemp("changes") / "a clone with spaces")


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_reaches_its_own_chain_and_nothing_else(
    sandbox: Sandbox, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, expected = CHANGES[what]
    monkeypatch.chdir(sandbox.root)
    for name in DVC_FOLDERS:
        monkeypatch.setenv(name, sandbox.environment[name])
    path = sandbox.root / "params.yaml"
    before = path.read_text()
    try:
        sandbox.edit(changes)
        assert ask_dvc().stale == (expected | {"report"} if expected else set())
    finally:
        path.write_text(before)
