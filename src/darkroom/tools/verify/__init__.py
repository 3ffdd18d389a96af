"""`darkroom data`: checks the data byte by byte, and summarises it. It imports no torch."""
