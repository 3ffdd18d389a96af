"""The attribute classifier of rendered scenes."""
