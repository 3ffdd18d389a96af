"""`darkroom invert`: carries images to the noise that the generator makes them of, and back, or to other classes."""
