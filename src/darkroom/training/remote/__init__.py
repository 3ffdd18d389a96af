"""Checkpoints elsewhere: copied to and fetched from a folder, a URL, a wandb artifact or the Hub."""
