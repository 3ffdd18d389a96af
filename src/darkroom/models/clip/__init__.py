"""CLIP: the network, its captions as tokens, its loss, and how it is opened."""
