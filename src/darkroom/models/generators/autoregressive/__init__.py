"""A causal transformer that predicts codes one after another."""
