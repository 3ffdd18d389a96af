"""Data: sources of images, shards with an index, latents beside them, and the readers. Nothing here imports torch."""
