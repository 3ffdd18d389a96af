"""Artifacts: folders that are written atomically, described by a manifest, and checked by their readers."""
