"""The unCLIP decoder: a cascade of U-Nets, from CLIP embeddings to images."""
