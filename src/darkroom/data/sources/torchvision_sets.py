"""The classification data sets of torchvision, by their names there: MNIST, CIFAR10, Food101, ImageNet and others.

Data sets of image files are read as files, through their argument `loader`, so that nothing is decoded twice and damage
is reported; others return pixels. The order is torchvision's, unless that is the order of the file system.
"""

import difflib
import inspect
import operator
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image, UnidentifiedImageError

from darkroom.data.damage import DamageError, Finding, Reason
from darkroom.data.keys import shown
from darkroom.data.sample import Entry, Raw
from darkroom.data.sources.torchvision_opening import downloads, open_or_download, parameters
from darkroom.errors import DarkroomError
from darkroom.params.parts import Torchvision as Settings
from darkroom.params.section import PARAMS

# Classes with the arguments of a classification data set that are none.
_OTHER = {
    *("CocoCaptions", "CocoDetection", "Cityscapes", "Flickr8k", "Flickr30k", "Kitti", "LFWPairs", "LSUNClass", "SBU"),
    *("VOCDetection", "VOCSegmentation", "WIDERFace", "DatasetFolder", "ImageFolder", "VisionDataset"),
}
_GIVEN = {"root", "download", "transform", "target_transform", "transforms", "loader"}  # never options
# These list folders without sorting: here their images are in the order of their paths.
_UNSORTED = {"INaturalist", "Omniglot", "SUN397"}
_NAMES = ("classes", "categories", "all_categories")  # attributes with the names of the labels
_NO_LABEL = -1  # the label of STL10's unlabelled images


class Torchvision:
    """Samples `cifar10-train-00000` and on: data set, split, options and number; labels are the names of the classes.

    It is pickled without the data set: an entry holds the path or the pixels for `read`, so that no other process loads
    the data set or torch.
    """

    def __init__(self, settings: Settings, path: Path | None = None) -> None:
        self._settings = settings
        kind = find(settings.dataset)
        self._given = arguments(kind, settings)
        self._in_files = "loader" in parameters(kind)
        self._root = path or downloads() / settings.dataset
        self._data = open_or_download(kind, self._root, self._given, settings.download)
        self._length = len(self._data)
        self._classes = _classes(self._data, settings)
        self._check()

    def size(self) -> int:
        """Return the number of images."""
        return self._length

    def entries(self, start: int, stop: int | None) -> Iterator[Entry]:
        """Yield the images `start` to `stop` (not included), as paths of files or as pixels."""
        digits = len(str(self._length - 1))
        options = [_option(name, value) for name, value in sorted(self._settings.options.items())]
        name = "-".join(filter(None, [self._settings.dataset, self._settings.split, *options]))
        prefix = re.sub(r"[^a-z0-9_-]", "_", name.lower())
        order = self._order()
        for number in range(start, self._length if stop is None else stop):
            key = f"{prefix}-{number:0{digits}d}"
            if self._in_files:
                path, target = self._data[order[number]]
                below = Path(path).relative_to(self._root).as_posix()
                yield Entry(key, shown(below), (below, _number(target)))
            else:
                yield Entry(key, f"{name} {number}", self._loaded(number))

    def read(self, entry: Entry) -> Raw:
        """Return an image, as the bytes of a file or as pixels, with the name of its class.

        Raises:
            DamageError: the image cannot be read.
        """
        if isinstance(entry.payload, DamageError):
            raise entry.payload
        image, target = entry.payload
        extension = (Path(image).suffix[1:] or None) if self._in_files else None
        if self._in_files:
            image = _bytes(self._root / image)
        label, findings = self._label(target)
        caption = self._settings.caption
        text = None if caption is None or label is None else caption.format(label=label)
        return Raw(image, label, text, extension, _identity(image), findings)

    def metadata(self) -> dict[str, Any]:
        """Return data set, split, options and the number of images."""
        settings = self._settings
        options = dict(sorted(settings.options.items()))
        return {"dataset": settings.dataset, "split": settings.split, "options": options, "images": self._length}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_data": None}

    def _loaded(self, number: int) -> tuple[Image.Image, int | None] | DamageError:
        """Return an image and its class from a data set of pixels, or what is wrong with the image."""
        try:
            image, target = self._data[number]
            image.load()
        except Exception as error:
            return _damage(error, self._root)
        return image, _number(target)

    def _order(self) -> Any:
        if self._settings.dataset not in _UNSORTED:
            return range(self._length)
        return sorted(range(self._length), key=lambda number: Path(self._data[number][0]).relative_to(self._root).parts)

    def _check(self) -> None:
        """Check that the first readable image has one class."""
        for number in range(min(self._length, 16)):
            try:
                _, target = self._data[number]
            except Exception:  # damage: `read` reports it
                continue
            try:
                _number(target)
            except TypeError:
                raise DarkroomError(
                    f"{PARAMS}: {self._settings.dataset} gives {type(target).__name__} and no number of a class, "
                    f"with `torchvision.options` {self._settings.options}: it is no classification set so."
                ) from None
            return

    def _label(self, target: int | None) -> tuple[str | None, tuple[Finding, ...]]:
        if target is None or target == _NO_LABEL:
            return None, ()
        if not self._classes:
            return str(target), ()
        if not 0 <= target < len(self._classes):
            return str(target), (Finding(Reason.LABEL_OUT_OF_RANGE, f"class {target} of {len(self._classes)}"),)
        return self._classes[target], ()


def _number(target: Any) -> int | None:
    """Return the number of a class, None for no class. Raises TypeError for any other value."""
    return None if target is None else operator.index(target)


def _classes(data: Any, settings: Settings) -> list[str]:
    """Return the names of the classes, the first of several names; [] where an option selects other targets."""
    if {"target_type", "target_types"} & set(settings.options):
        return []
    found: list[Any] = next((getattr(data, name) for name in _NAMES if hasattr(data, name)), [])
    # Names of folders need not be valid Unicode.
    return [shown(str(name[0] if isinstance(name, tuple) else name)) for name in found]


def _option(name: str, value: bool | int | str) -> str:
    """Return an option as a part of a key: its value, or its name where the value is true or false."""
    return name if value is True else f"no_{name}" if value is False else str(value)


def _identity(image: bytes | Image.Image) -> bytes:
    if isinstance(image, bytes):
        return image
    return f"{image.mode} {image.width} {image.height} ".encode() + image.tobytes()


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise DamageError(Reason.MISSING) from None
    except OSError as error:
        raise DamageError(Reason.UNREADABLE, error.strerror or "") from error


def _damage(error: Exception, root: Path) -> DamageError:
    """Return what is wrong with an image that a data set could not read."""
    detail = shown(" ".join(str(error).replace(f"{root}/", "").split()))
    if isinstance(error, FileNotFoundError):
        return DamageError(Reason.MISSING)
    if isinstance(error, UnidentifiedImageError):
        return DamageError(Reason.NOT_AN_IMAGE)
    if isinstance(error, Image.DecompressionBombError):
        return DamageError(Reason.BOMB, detail)
    if isinstance(error, OSError) and error.strerror:
        return DamageError(Reason.UNREADABLE, error.strerror)
    return DamageError(Reason.TRUNCATED if "truncated" in detail.lower() else Reason.CORRUPT, detail)


def find(name: str) -> type:
    """Return the class of a classification data set.

    Raises:
        DarkroomError: there is no data set of this name, or it is for another task; the message suggests near names.
    """
    from torchvision import datasets

    sets = [each for each in datasets.__all__ if inspect.isclass(getattr(datasets, each))]
    fitting = ", ".join(each for each in sets if each not in _OTHER)
    if name not in sets:
        by_case = {each.lower(): each for each in sets}
        near = [by_case[each] for each in difflib.get_close_matches(name.lower(), by_case, n=3)]
        hint = f"did you mean {' or '.join(near)}?" if near else f"it has {fitting}."
        raise DarkroomError(f"{PARAMS}: torchvision has no data set `{name}`; {hint}")
    cls: type = getattr(datasets, name)
    if name in _OTHER or not {"root", "transform", "target_transform"} <= set(parameters(cls)):
        hint = "; the source `folder` reads any folder" if name in ("ImageFolder", "DatasetFolder") else ""
        raise DarkroomError(f"{PARAMS}: `torchvision.dataset` is {name}, which is no classification set{hint}.")
    return cls


def arguments(cls: type, settings: Settings) -> dict[str, Any]:
    """Return the arguments of a class apart from the folder: the split by the name that the class uses, and options.

    Raises:
        DarkroomError: the class has no such split or option, or needs another option.
    """
    name, split = cls.__name__, settings.split
    takes = {each: parameter for each, parameter in parameters(cls).items() if each not in _GIVEN}
    found: dict[str, Any] = {}
    said = f"`torchvision.split` is {'null' if split is None else split}"
    if "train" in takes:
        if split not in ("train", "test"):
            raise DarkroomError(f"{PARAMS}: {name} has the splits train and test; {said}.")
        found["train"] = split == "train"
    elif "split" in takes:
        if split is None:
            raise DarkroomError(f"{PARAMS}: {name} has splits; {said} and must name one.")
        found["split"] = split
    elif split is not None:
        raise DarkroomError(f"{PARAMS}: {name} has no splits; {said} and must be null.")
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
