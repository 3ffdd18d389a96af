"""Trainings of ours, each beside its original, at the same shapes."""
