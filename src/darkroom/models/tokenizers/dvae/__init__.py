"""The discrete VAE of DALL-E."""
