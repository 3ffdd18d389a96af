"""Folders and manifest kinds of the image shards and of their catalog, for writers and readers."""

from pathlib import Path

KIND = "shards"
SHARDS = Path("data/shards")
CATALOG_KIND = "catalog"
CATALOG = Path("data/catalog")
