"""Embeddings in memory, as `EmbeddingShards` gives them."""

import numpy as np


class Embeddings:
    """Image embeddings that follow from their texts: a turn of the text embedding, and a little of their own."""

    clip, normalised = "clip", True

    def __init__(self, images=64, dim=8, encoding=(5, 6), texts=6, missing=(), own=0.1):
        self.dim, self.encoding_shape = dim, encoding
        rng = np.random.default_rng(0)
        kinds = rng.integers(0, texts, images)
        text = _unit(rng.normal(size=(texts, dim)))[kinds]
        turn = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
        self.values = {
            "image": _unit(text @ turn + own * rng.normal(size=(images, dim))).astype(np.float16),
            "text": text.astype(np.float16),
        }
        if encoding is not None:
            words = rng.normal(size=(texts, *encoding))
            words[:, 3:] = 0
            self.values["encoding"] = words[kinds].astype(np.float16)
        self.captions = [None if row in missing else f"kind {kinds[row]}" for row in range(images)]
        for name in ("text", "encoding"):
            if name in self.values:
                self.values[name][list(missing)] = 0

    def __len__(self):
        return len(self.values["image"])

    def __getitems__(self, rows, names=("image",)):
        return {name: self.values[name][list(rows)] for name in names}

    def keys_of(self, rows):
        return [f"key{row}" for row in rows]


def _unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)
