"""The table of stages: the settings of each, the key that it runs for, and whether it trains.

A stage's body is `darkroom.stages.STAGE`, its settings are the class named here.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """One stage.

    settings: MODULE:CLASS of the settings that validate the stage's parameters.
    foreach: key of params.yaml whose entries it runs once for, as in dvc.yaml; None: it runs once.
    trains: whether it trains, and may run in several processes.
    shares: whether it may run in several processes without training.
    networks: whether it runs networks, for which a GPU is reserved.
    """

    settings: str
    foreach: str | None = None
    trains: bool = False
    shares: bool = False
    networks: bool = True


STAGES = {
    "code": Stage("darkroom.params.ingest:CodeParams", networks=False),
    "ingest": Stage("darkroom.params.ingest:Params", foreach="parts", networks=False),
    "catalog": Stage("darkroom.params.ingest:CatalogParams", networks=False),
    "train_teacher": Stage("darkroom.models.evaluators.settings:TeacherParams", trains=True),
    "train_tokenizer": Stage("darkroom.models.tokenizers.settings:Params", trains=True),
    "score_tokenizer": Stage("darkroom.models.tokenizers.settings:ScoreParams"),
    "sample_tokenizer": Stage("darkroom.models.tokenizers.settings:SampleParams"),
    "encode_latents": Stage("darkroom.models.tokenizers.settings:EncodeParams", foreach="parts"),
    "train_extractor": Stage("darkroom.models.evaluators.settings:ExtractorParams", trains=True),
    "reference_stats": Stage("darkroom.params.reference_stats:Params"),
    "score_tokenizer_samples": Stage("darkroom.models.tokenizers.settings:ScoreSamplesParams"),
    "train_generator": Stage("darkroom.models.generators.settings:Params", trains=True),
    "train_classifier": Stage("darkroom.models.generators.settings:ClassifierParams", trains=True),
    "train_distilled": Stage("darkroom.models.generators.settings:DistilledParams", trains=True),
    "sample_generator": Stage("darkroom.models.generators.sample_settings:Params", shares=True),
    "score_generator": Stage("darkroom.models.generators.sample_settings:ScoreParams"),
    "train_clip": Stage("darkroom.models.clip.settings:Params", trains=True),
    "embed_clip": Stage("darkroom.models.clip.settings:EmbedParams", foreach="parts"),
    "train_decoder": Stage("darkroom.models.decoder.settings:Params", foreach="train_decoder.unets", trains=True),
    "sample_decoder": Stage("darkroom.models.decoder.settings:SampleParams"),
    "train_scene_reader": Stage("darkroom.models.evaluators.settings:SceneReaderParams", trains=True),
    "score_decoder": Stage("darkroom.models.decoder.settings:ScoreParams"),
    "train_prior": Stage("darkroom.models.prior.settings:Params", trains=True),
    "sample_text": Stage("darkroom.models.prior.settings:SampleParams"),
    "score_text": Stage("darkroom.models.prior.settings:ScoreParams"),
    "report": Stage("darkroom.report.settings:Params", networks=False),
}
FOREACH = {name: stage.foreach for name, stage in STAGES.items() if stage.foreach is not None}
TRAININGS = tuple(name for name, stage in STAGES.items() if stage.trains)
SHARED = tuple(name for name, stage in STAGES.items() if stage.shares)


def singular(over: str) -> str:
    """Return the singular of a key of params.yaml: `part` of `parts`, `unet` of `train_decoder.unets`."""
    return over.rpartition(".")[2].removesuffix("s")
