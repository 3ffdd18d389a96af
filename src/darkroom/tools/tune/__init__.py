"""`darkroom tune`: find settings of a training that are faster on this machine at equal loss."""
