"""`darkroom init`: write settings for your own images that fit your time."""
