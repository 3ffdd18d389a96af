"""The page that a person looks at: scores, pictures, curves and data, in one file."""
