"""`darkroom score`: the scores of any two sets of images, outside any pipeline."""
