"""No tokenizer: the latent of an image is the image itself."""
