"""What each trained model brings to the loop, one file a model."""
