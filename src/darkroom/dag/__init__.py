"""The picture of the stages, drawn from dvc.yaml."""
