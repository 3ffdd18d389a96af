"""`darkroom invert`: map images to the noise of the generator, and back, or to other classes."""
