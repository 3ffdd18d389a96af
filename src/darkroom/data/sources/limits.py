"""Limits on the size of the files of one sample."""

LARGEST = 2**30  # maximum bytes of an image
LONGEST = 2**24  # maximum bytes of a label, a caption or a JSON
