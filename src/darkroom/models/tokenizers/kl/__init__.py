"""The KL autoencoder of latent diffusion."""
