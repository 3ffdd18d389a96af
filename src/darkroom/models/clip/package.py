"""The only import of clip-anytorch, a package of OpenAI's CLIP.

Its networks are used unchanged, so that `clip.load` opens networks trained here. Source: Radford et al., "Learning
transferable visual models from natural language supervision", 2021, arXiv 2103.00020.
"""

import warnings

with warnings.catch_warnings():
    # It parses version numbers with pkg_resources, which warns, and which setuptools drops in version 81.
    warnings.filterwarnings("ignore", message="pkg_resources is deprecated", category=UserWarning)
    from clip import available_models, load, tokenize
    from clip.model import CLIP, build_model, convert_weights

VOCABULARY = 49408  # size of the byte-pair vocabulary; the last two tokens are the start and the end of a text

__all__ = ["CLIP", "VOCABULARY", "available_models", "build_model", "convert_weights", "load", "tokenize"]
