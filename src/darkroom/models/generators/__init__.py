"""Generators of latents, one package for each kind, and shared code."""
