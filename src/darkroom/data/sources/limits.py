"""What is too large to be read into memory for one sample, whatever it is called."""

LARGEST = 2**30  # bytes of an image
LONGEST = 2**24  # bytes of a label, a caption or a JSON
