"""Finds a classification data set of torchvision by its name, and the arguments of its class."""

import difflib
import inspect
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from darkroom.errors import DarkroomError
from darkroom.params.parts import Torchvision as Settings
from darkroom.params.section import PARAMS

# Classes with the arguments of a classification data set that are none.
_OTHER = {
    "CocoCaptions": "images with captions",
    "CocoDetection": "object detection",
    "Cityscapes": "segmentation",
    "Flickr8k": "images with captions",
    "Flickr30k": "images with captions",
    "Kitti": "object detection",
    "LFWPairs": "pairs of images",
    "LSUNClass": "one class of LSUN",
    "SBU": "images with captions",
    "VOCDetection": "object detection",
    "VOCSegmentation": "segmentation",
    "WIDERFace": "face detection",
    "DatasetFolder": "any folder; the source `folder` reads it",
    "ImageFolder": "any folder; the source `folder` reads it",
    "VisionDataset": "what all data sets have in common",
}
_GIVEN = {"root", "download", "transform", "target_transform", "transforms", "loader"}  # never options
_ARCHIVES = (".gz", ".tgz", ".zip", ".tar", ".bz2", ".xz", ".mat", ".data", ".h5", ".csv")


def find(name: str) -> type:
    """Return the class of a classification data set.

    Raises:
        DarkroomError: there is no data set of this name, or it is for another task; the message suggests near names.
    """
    from torchvision import datasets

    sets = [each for each in datasets.__all__ if inspect.isclass(getattr(datasets, each))]
    if name not in sets:
        by_case = {each.lower(): each for each in sets}
        near = [by_case[each] for each in difflib.get_close_matches(name.lower(), by_case, n=3)]
        hint = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(filter(_classifies, sets))}."
        raise DarkroomError(f"{PARAMS}: torchvision has no data set `{name}`; {hint}")
    if not _classifies(name):
        what = f" ({_OTHER[name]})" if name in _OTHER else ""
        raise DarkroomError(f"{PARAMS}: `torchvision.dataset` is {name}, which is no classification set{what}.")
    return getattr(datasets, name)


def _classifies(name: str) -> bool:
    from torchvision import datasets

    return name not in _OTHER and {"root", "transform", "target_transform"} <= set(parameters(getattr(datasets, name)))


def parameters(cls: type) -> dict[str, inspect.Parameter]:
    """Return the parameters of a class, with those of its base classes that it passes on."""
    found: dict[str, inspect.Parameter] = {}
    for each in cls.__mro__[:-1]:
        if "__init__" not in vars(each):
            continue
        signature = inspect.signature(each.__init__).parameters  # type: ignore[misc]
        for name, parameter in list(signature.items())[1:]:
            found.setdefault(name, parameter)
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.values()):
            break
    return {name: each for name, each in found.items() if each.kind is not each.VAR_KEYWORD}


def arguments(cls: type, settings: Settings) -> dict[str, Any]:
    """Return the arguments of a class apart from the folder: the split by the name that the class uses, and options.

    Raises:
        DarkroomError: the class has no such split or option, or needs another option.
    """
    name, split = cls.__name__, settings.split
    takes = {each: parameter for each, parameter in parameters(cls).items() if each not in _GIVEN}
    found: dict[str, Any] = {}
    if "train" in takes:
        if split not in ("train", "test"):
            said = "null" if split is None else split
            raise DarkroomError(f"{PARAMS}: {name} has the splits train and test; `torchvision.split` is {said}.")
        found["train"] = split == "train"
    elif "split" in takes:
        if split is None:
            raise DarkroomError(f"{PARAMS}: {name} has splits; `torchvision.split` is null and must name one.")
        found["split"] = split
    elif split is not None:
        raise DarkroomError(f"{PARAMS}: {name} has no splits; `torchvision.split` is {split} and must be null.")
    options = {each: parameter for each, parameter in takes.items() if each not in found}
    for option in settings.options:
        if option not in options:
            near = difflib.get_close_matches(option, options, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"it takes: {', '.join(options) or 'none'}."
            raise DarkroomError(f"{PARAMS}: {name} takes no `{option}` under `torchvision.options`; {hint}")
    for option, parameter in options.items():
        if parameter.default is parameter.empty and option not in settings.options:
            raise DarkroomError(f"{PARAMS}: {name} needs `{option}` under `torchvision.options`.")
    return {**found, **settings.options}


def files(cls: type) -> list[str]:
    """Return the names of the archives in the download code of a class, or else in its attributes."""
    attributes = {name: inspect.getattr_static(cls, name) for name in dir(cls) if not name.startswith("__")}
    found: set[str] = set()
    for name in ("download", "_download"):
        if inspect.isfunction(attributes.get(name)):
            code = attributes[name].__code__
            found |= _archives([code.co_consts, [attributes.get(each) for each in code.co_names]])
    return sorted(found or _archives(list(attributes.values())))


def _archives(value: Any) -> set[str]:
    """Return the names of archives among nested texts: file names, and the ends of addresses."""
    if isinstance(value, str):
        name = PurePosixPath(value).name
        return {name} if name.endswith(_ARCHIVES) and not name.startswith(".") and " " not in name else set()
    if isinstance(value, Mapping):
        value = list(value.values())
    return set().union(*map(_archives, value)) if isinstance(value, list | tuple) else set()
