"""The unCLIP prior: from a text to CLIP embeddings of images."""
