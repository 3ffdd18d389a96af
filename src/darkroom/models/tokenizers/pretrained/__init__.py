"""Published KL autoencoders."""
