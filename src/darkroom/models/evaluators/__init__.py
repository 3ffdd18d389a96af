"""The networks that score, and the teacher, which never does."""
