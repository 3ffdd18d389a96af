"""What a distance is called: FID is Inception's, and nobody else's."""

from collections.abc import Mapping


def score_names(extractor: str, distances: Mapping[str, float]) -> dict[str, float]:
    """Return the distances under the names of the metrics table.

    In the in-domain extractor's space they are `fd`, `fd_debiased`, `fd_se`, `kid`, `kid_se`; in Inception's `fid`,
    `fid_debiased`, `fid_se`, `inception_kid`, `inception_kid_se`.
    """
    if extractor != "inception":
        return dict(distances)
    return {
        f"fid{name.removeprefix('fd')}" if name.startswith("fd") else f"inception_{name}": value
        for name, value in distances.items()
    }
