"""No generator."""
