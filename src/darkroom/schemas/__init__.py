"""The sections of params.yaml, one file a stage. Nothing here imports torch."""
