"""The stages: artifacts in, a call of the library, artifacts out. One file a stage, named as in dvc.yaml."""

# No effect on any output: the names of the stages, for the command line

STAGES = (
    "code",
    "ingest",
    "catalog",
    "train_teacher",
    "train_tokenizer",
    "score_tokenizer",
    "sample_tokenizer",
    "encode_latents",
    "train_extractor",
    "reference_stats",
    "score_tokenizer_samples",
    "train_dit",
    "sample_dit",
    "score_dit",
    "train_clip",
    "embed_clip",
    "train_decoder",
    "sample_decoder",
    "train_scene_reader",
    "score_decoder",
    "train_prior",
    "sample_text",
    "score_text",
    "report",
)

# Stages that run once for each entry of a key of params.yaml, and that key: the `foreach` of dvc.yaml.
SPREAD = {
    "ingest": "parts",
    "encode_latents": "parts",
    "embed_clip": "parts",
    "train_decoder": "train_decoder.unets",
}

# Stages that train: they may run in several processes.
TRAININGS = (
    "train_teacher",
    "train_tokenizer",
    "train_extractor",
    "train_dit",
    "train_clip",
    "train_decoder",
    "train_scene_reader",
    "train_prior",
)


def singular(over: str) -> str:
    """Return what one entry of a key of params.yaml is called: `part` of `parts`, `unet` of `train_decoder.unets`."""
    return over.rpartition(".")[2].removesuffix("s")
