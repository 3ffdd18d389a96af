"""Published diffusion transformers, used without training."""
