"""Render scenes of coloured forms with exactly true captions."""
