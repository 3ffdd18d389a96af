"""A bidirectional transformer that predicts masked codes."""
