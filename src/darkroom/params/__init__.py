"""params.yaml: how its sections are read, checked and explained, and those that no model owns. Imports no torch."""
