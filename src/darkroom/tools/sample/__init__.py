"""`darkroom sample`: generates images from texts or classes, and variations of image files."""
