"""Where the shards of the parts lie, and what their manifests are called: for writers and readers alike."""

from pathlib import Path

KIND = "shards"
SHARDS = Path("data/shards")
