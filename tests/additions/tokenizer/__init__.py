"""Patches to vectors and back, by two linear maps."""
