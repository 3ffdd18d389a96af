"""The classifier of noisy latents, whose gradient guides a generator. It is never an evaluator."""
