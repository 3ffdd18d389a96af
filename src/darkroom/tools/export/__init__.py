"""`darkroom export`: a trained generator or tokenizer in formats of other programs."""
