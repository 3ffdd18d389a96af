"""`darkroom init`: settings for a person's own images, within the time that they have."""
