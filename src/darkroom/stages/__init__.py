"""The stages: artifacts in, a call of the library, artifacts out. One file a stage, named as in dvc.yaml."""

STAGES = (
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
    "report",
)

# Stages that run once for each entry of `parts`.
PER_PART = ("ingest", "encode_latents")

# Stages that train: they may run in several processes.
TRAININGS = ("train_teacher", "train_tokenizer", "train_extractor", "train_dit")
