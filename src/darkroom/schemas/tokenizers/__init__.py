"""The sections of `train_tokenizer`, one file a kind."""
