"""Folder and manifest kind of the image shards, for writers and readers."""

from pathlib import Path

KIND = "shards"
SHARDS = Path("data/shards")
