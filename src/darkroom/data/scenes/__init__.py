"""Render scenes of coloured shapes with captions that describe them exactly."""
