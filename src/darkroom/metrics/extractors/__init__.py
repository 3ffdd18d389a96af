"""Feature networks. Each takes uint8 images and has `features(images) -> (N, D) float32`; none reads at import."""
