"""`darkroom doctor`: check the installation, the machine and this clone, and suggest fixes."""
