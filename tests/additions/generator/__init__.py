"""Normal latents with a mean and a deviation for each class."""
