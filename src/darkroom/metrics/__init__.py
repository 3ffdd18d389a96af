"""Scores: distances between features of generated and of real images, with their uncertainty and their protocol."""
