"""The quantised autoencoder of VQGAN and MUSE."""
