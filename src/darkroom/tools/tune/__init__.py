"""`darkroom tune`: the settings with which a training is quickest on this machine and learns the same."""
