"""`darkroom sample`: generates images from texts, and variations of image files."""
