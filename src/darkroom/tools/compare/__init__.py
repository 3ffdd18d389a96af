"""`darkroom compare`: whether a change helped, and whether the difference is more than noise."""
