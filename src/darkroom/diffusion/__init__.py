"""Diffusion for any network: objectives, noise schedules, guidance, samplers (docs/diffusion.md)."""
