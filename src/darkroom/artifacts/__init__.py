"""Artifacts: folders written at once, described by a manifest, checked by whoever reads them."""
