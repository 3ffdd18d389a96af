"""Output on the terminal: progress, bars, tables, and the log of a stage."""
