"""`darkroom doctor`: checks the installation, the machine and this clone, and says what to do."""
