"""The teacher: the network of perceptual losses where no published one is used. It is never an evaluator."""
