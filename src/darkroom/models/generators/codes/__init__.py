"""Transformers over the codes of a discrete tokenizer: what the kinds `autoregressive` and `masked` share."""
