"""`darkroom params`: every key of params.yaml with value, default, description and allowed values."""
