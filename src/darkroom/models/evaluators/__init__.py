"""The evaluators: networks that score generated images; and the teacher, which trains others and never scores."""
