"""A trained generator distilled into a few calls of a network of the same shape."""
