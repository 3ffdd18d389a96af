"""`darkroom export`: a trained generator or tokenizer in formats that others read."""
