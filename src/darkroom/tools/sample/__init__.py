"""`darkroom sample`: generate images from texts or classes, and variations of image files."""
