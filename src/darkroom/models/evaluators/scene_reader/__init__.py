"""The attribute classifier of rendered scenes: it detects things with their colour, form, size and position."""
