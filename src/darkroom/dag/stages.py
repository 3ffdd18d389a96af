"""The stages: for each, the module with its settings, what it runs once for each of, and whether it trains.

A stage's body is `darkroom.stages.STAGE`, its settings are the class `Params` of the module named here.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """One stage.

    settings: module of the class `Params`, which validates what dvc.yaml gives to the stage.
    foreach: key of params.yaml for each of whose entries it runs once, as in dvc.yaml; None: it runs once.
    trains: whether it trains, and may run in several processes.
    shares: whether it may run in several processes though it does not train.
    networks: whether it runs networks, for which a GPU is reserved.
    """

    settings: str
    foreach: str | None = None
    trains: bool = False
    shares: bool = False
    networks: bool = True


STAGES = {
    "code": Stage("darkroom.params.code", networks=False),
    "ingest": Stage("darkroom.params.ingest", foreach="parts", networks=False),
    "catalog": Stage("darkroom.params.catalog", networks=False),
    "train_teacher": Stage("darkroom.models.evaluators.teacher.settings", trains=True),
    "train_tokenizer": Stage("darkroom.models.tokenizers.settings", trains=True),
    "score_tokenizer": Stage("darkroom.models.tokenizers.score_settings"),
    "sample_tokenizer": Stage("darkroom.models.tokenizers.sample_settings"),
    "encode_latents": Stage("darkroom.models.tokenizers.encode_settings", foreach="parts"),
    "train_extractor": Stage("darkroom.models.evaluators.extractor.settings", trains=True),
    "reference_stats": Stage("darkroom.params.reference_stats"),
    "score_tokenizer_samples": Stage("darkroom.models.tokenizers.score_samples_settings"),
    "train_generator": Stage("darkroom.models.generators.settings", trains=True),
    "train_classifier": Stage("darkroom.models.generators.classifier.settings", trains=True),
    "train_distilled": Stage("darkroom.models.generators.distilled.settings", trains=True),
    "sample_generator": Stage("darkroom.models.generators.sample_settings", shares=True),
    "score_generator": Stage("darkroom.models.generators.score_settings"),
    "train_clip": Stage("darkroom.models.clip.settings", trains=True),
    "embed_clip": Stage("darkroom.models.clip.embed_settings", foreach="parts"),
    "train_decoder": Stage("darkroom.models.decoder.settings", foreach="train_decoder.unets", trains=True),
    "sample_decoder": Stage("darkroom.models.decoder.sample_settings"),
    "train_scene_reader": Stage("darkroom.models.evaluators.scene_reader.settings", trains=True),
    "score_decoder": Stage("darkroom.models.decoder.score_settings"),
    "train_prior": Stage("darkroom.models.prior.settings", trains=True),
    "sample_text": Stage("darkroom.models.prior.sample_settings"),
    "score_text": Stage("darkroom.models.prior.score_settings"),
    "report": Stage("darkroom.report.settings", networks=False),
}
FOREACH = {name: stage.foreach for name, stage in STAGES.items() if stage.foreach is not None}
TRAININGS = tuple(name for name, stage in STAGES.items() if stage.trains)
SHARED = tuple(name for name, stage in STAGES.items() if stage.shares)


def singular(over: str) -> str:
    """Return what one entry of a key of params.yaml is called: `part` of `parts`, `unet` of `train_decoder.unets`."""
    return over.rpartition(".")[2].removesuffix("s")
