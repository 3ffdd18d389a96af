"""The classifier of the data's own classes, whose features the scores compare."""
