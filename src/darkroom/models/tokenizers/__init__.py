"""Tokenizers: between images and latents, behind one protocol."""
