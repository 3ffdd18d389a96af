"""`darkroom data`: checks the data byte by byte, and shows what is in it. Answers without torch."""
