"""Generators of latents, one room a kind, and what they share."""
