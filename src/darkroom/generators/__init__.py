"""Generators of latents: the diffusion transformer, guidance."""
