"""Published diffusion transformers, taken as they are."""
