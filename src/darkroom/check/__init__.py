"""`darkroom check`: params.yaml and dvc.yaml, checked before anything runs."""
