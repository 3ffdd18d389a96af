"""`darkroom compare`: show whether a change helped, and whether the difference exceeds noise."""
