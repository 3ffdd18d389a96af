"""Darkroom trains image generators as one reproducible DAG."""
