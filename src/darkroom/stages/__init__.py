"""The bodies of the stages: read artifacts, call the library, write artifacts. One file per stage in dvc.yaml."""
