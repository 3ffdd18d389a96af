"""Data: sources of images, indexed shards, their latents and embeddings, and the readers. Nothing imports torch."""
