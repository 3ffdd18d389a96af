"""What is used of clip-anytorch, OpenAI's CLIP as a package: the one place where it is imported.

Its networks are taken as they are, so that `clip.load` opens what is trained here. Source: Radford et al., "Learning
transferable visual models from natural language supervision", 2021, arXiv 2103.00020.
"""

import warnings

with warnings.catch_warnings():
    # It takes a version number apart with pkg_resources, which setuptools keeps until version 81, and warns of.
    warnings.filterwarnings("ignore", message="pkg_resources is deprecated", category=UserWarning)
    from clip import available_models, load, tokenize
    from clip.model import CLIP, build_model, convert_weights

VOCABULARY = 49408  # tokens of its byte-pair encoding; the last two are the start and the end of a text

__all__ = ["CLIP", "VOCABULARY", "available_models", "build_model", "convert_weights", "load", "tokenize"]
