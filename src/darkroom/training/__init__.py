"""One training loop for every model: a recipe brings batches, losses and modules, the loop brings the rest."""
