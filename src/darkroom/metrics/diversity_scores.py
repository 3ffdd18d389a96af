"""The scores of diversity by name: what `diversity.py` measures. Loads no torch."""

from darkroom.metrics.score import Score

_ERROR = "standard deviation over pairs / sqrt(their number)"
_PAIRS = "over drawn pairs of samples of one class (of any images where one has no class), each sample in one pair"

DIVERSITY = (
    Score(
        "diversity",
        "diversity",
        "How different two generated images of one class are in the layers of the in-domain extractor, mean over "
        "pairs. As real images, which stand beside it, is best: far below them the model repeats itself, far above "
        "them its images are spoiled.",
        formula=f"mean {_PAIRS}, of the sum over the extractor's layers of the mean over places of |a/|a| - b/|b||^2, "
        "|a|^2 + 0.01 times the layer's usual square in place of |a|^2",
        error=_ERROR,
        title="diversity in a class",
        compared=False,
        evaluator="diversity",
    ),
    Score(
        "lpips_diversity",
        "diversity",
        "The same by LPIPS, which weighs features of VGG16 as people judge images.",
        formula=f"mean {_PAIRS}, of LPIPS, v0.1",
        error=_ERROR,
        title="LPIPS diversity in a class",
        compared=False,
        evaluator="lpips",
    ),
)
