"""The network of perceptual losses where none is downloaded. It never judges."""
