"""Rendered scenes of coloured forms, and sentences that are exactly true of them."""
