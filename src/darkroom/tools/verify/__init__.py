"""`darkroom data` and `darkroom verify`: summarise the data, and check it byte by byte. Does not import torch."""
