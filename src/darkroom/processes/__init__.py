"""Processes of a stage: how they are started, watched and ended together."""
