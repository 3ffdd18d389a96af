"""The diffusion transformer (Peebles and Xie, 2023, arXiv 2212.09748)."""
