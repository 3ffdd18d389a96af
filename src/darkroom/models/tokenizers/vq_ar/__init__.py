"""The vector-quantised autoregressive autoencoder."""
