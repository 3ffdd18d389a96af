"""The page `reports/index.html`: scores, pictures, curves and data, in one file."""
