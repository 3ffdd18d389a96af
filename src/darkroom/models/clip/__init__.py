"""CLIP: network, tokenised captions, contrastive loss, training recipe, and loading."""
