"""Rendered scenes of coloured forms, and captions that are exactly true of them."""
