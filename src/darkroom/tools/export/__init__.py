"""`darkroom export`: a trained generator in formats that others read."""
