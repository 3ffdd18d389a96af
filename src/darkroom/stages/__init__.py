"""The stages: artifacts in, a call of the library, artifacts out. One file a stage, named as in dvc.yaml."""
