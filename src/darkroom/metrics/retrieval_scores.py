"""The scores of CLIP's embeddings, by name; `retrieval.py` computes them. Loads no torch."""

from darkroom.metrics.score import Score

ERROR = "sqrt(p (1 - p) / n), n the images or captions"  # of each, a fraction p

RETRIEVAL = (
    Score(
        "zero_shot_accuracy",
        "clip",
        "The fraction of images whose class CLIP finds among all classes, each told by its captions or "
        "prompts. Higher is better.",
        formula="share of images whose class's prompts, mean of unit embeddings, have the largest cosine",
        title="zero-shot accuracy",
        higher_is_better=True,
        paired=True,
    ),
    Score(
        "image_to_text_r1",
        "clip",
        "The fraction of images that CLIP finds nearer to their own caption than to any other of the "
        "split's. Higher is better; as many captions as differ are compared.",
        formula="share of images with no other caption whose cosine is as large as that of their own",
        title="caption of an image, R@1",
        higher_is_better=True,
        paired=True,
    ),
    Score(
        "image_to_text_r5",
        "clip",
        "The same where fewer than five other captions are as near.",
        formula="as image_to_text_r1, with fewer than 5 others",
        title="caption of an image, R@5",
        higher_is_better=True,
        paired=True,
    ),
    Score(
        "text_to_image_r1",
        "clip",
        "The fraction of captions to which no image of another caption is as near as one of their own.",
        formula="share of captions of one of whose images no image of another caption has as large a cosine",
        title="image of a caption, R@1",
        higher_is_better=True,
        paired=True,
    ),
    Score(
        "text_to_image_r5",
        "clip",
        "The same where fewer than five images of other captions are as near.",
        formula="as text_to_image_r1, with fewer than 5 others",
        title="image of a caption, R@5",
        higher_is_better=True,
        paired=True,
    ),
)
