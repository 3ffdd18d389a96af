"""`darkroom sample`: images of texts and of images that a person gives."""
