"""Diffusion for any network: objectives, noise schedules, guidance, samplers (docs/reference/diffusion.md)."""
