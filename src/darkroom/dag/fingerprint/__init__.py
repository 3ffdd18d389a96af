"""What the code of a stage says, hashed without what no program reads: comments, docstrings, layout."""
