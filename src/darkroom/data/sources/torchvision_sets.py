"""Read the classification data sets of torchvision by name: MNIST, CIFAR10, Food101, ImageNet and others.

Data sets of image files are read as files, through their argument `loader`, so that nothing is decoded twice and damage
is reported; others return pixels. The order is torchvision's, unless that is the order of the file system.

Most classes of torchvision check that files exist, and few check their content. So files are downloaded and unpacked in
a temporary folder, and moved into place afterwards.
"""

import fcntl
import inspect
import operator
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image, UnidentifiedImageError

from darkroom.artifacts.atomic import require_writable, sync_tree
from darkroom.data.damage import DamageError, Finding, Reason
from darkroom.data.keys import shown
from darkroom.data.sample import Entry, Raw
from darkroom.errors import DarkroomError
from darkroom.params.parts import Torchvision as Settings
from darkroom.params.section import PARAMS

# Data sets that return an image and its class.
SETS = (
    *("CIFAR10", "CIFAR100", "CLEVRClassification", "Caltech101", "Caltech256", "CelebA", "Country211", "DTD"),
    *("EMNIST", "EuroSAT", "FER2013", "FGVCAircraft", "FashionMNIST", "Flowers102", "Food101", "GTSRB"),
    *("INaturalist", "ImageNet", "Imagenette", "KMNIST", "LFWPeople", "LSUN", "MNIST", "Omniglot"),
    *("OxfordIIITPet", "PCAM", "Places365", "QMNIST", "RenderedSST2", "SEMEION", "STL10", "SUN397"),
    *("SVHN", "StanfordCars", "USPS"),
)
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
        cls = find(settings.dataset)
        self._in_files = "loader" in parameters(cls)
        self._root = path or downloads() / settings.dataset
        self._data = open_or_download(cls, self._root, settings)
        self._length = len(self._data)
        self._classes = _classes(self._data, settings)

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
        if self._in_files:
            image = _bytes(self._root / image)
        label, findings = self._label(target)
        caption = self._settings.caption
        text = None if caption is None or label is None else caption.format(label=label)
        return Raw(image, label, text, _identity(image), findings)

    def metadata(self) -> dict[str, Any]:
        """Return data set, split, options and the number of images."""
        settings = self._settings
        options = dict(sorted(settings.options.items()))
        return {"dataset": settings.dataset, "split": settings.split, "options": options, "images": self._length}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_data": None}

    def _loaded(self, number: int) -> tuple[Image.Image, int | None] | DamageError:
        """Return an image and its class from a data set of pixels, or the damage of the image."""
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

    def _label(self, target: int | None) -> tuple[str | None, tuple[Finding, ...]]:
        if target is None or target == _NO_LABEL:
            return None, ()
        if not self._classes:
            return str(target), ()
        if not 0 <= target < len(self._classes):
            return str(target), (Finding(Reason.LABEL_OUT_OF_RANGE, f"class {target} of {len(self._classes)}"),)
        return self._classes[target], ()


def _number(target: Any) -> int | None:
    """Return the number of a class, None for no class. Raises DarkroomError for any other value."""
    try:
        return None if target is None else operator.index(target)
    except TypeError:
        raise DarkroomError(
            f"{PARAMS}: the data set returns {type(target).__name__}, not a class number, so it is not a "
            "classification set with these `torchvision.options`."
        ) from None


def _classes(data: Any, settings: Settings) -> list[str]:
    """Return the names of the classes, the first of several names; [] where an option selects other targets."""
    if {"target_type", "target_types"} & set(settings.options):
        return []
    names: list[Any] = next((getattr(data, name) for name in _NAMES if hasattr(data, name)), [])
    # Names of folders need not be valid Unicode.
    return [shown(str(name[0] if isinstance(name, tuple) else name)) for name in names]


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
    """Return the damage of an image that a data set could not read."""
    if isinstance(error, FileNotFoundError):
        return DamageError(Reason.MISSING)
    if isinstance(error, UnidentifiedImageError):
        return DamageError(Reason.NOT_AN_IMAGE)
    detail = shown(" ".join(str(error).replace(f"{root}/", "").split()))
    return DamageError(Reason.TRUNCATED if "truncated" in detail.lower() else Reason.CORRUPT, detail)


def find(name: str) -> type:
    """Return the class of a classification data set.

    Raises:
        DarkroomError: the data set does not exist, or is for another task; the message lists the available ones.
    """
    from torchvision import datasets

    if name not in SETS:
        raise DarkroomError(
            f"{PARAMS}: `torchvision.dataset` is {name}, which is not a classification set of torchvision. Use one of "
            f"{', '.join(SETS)}, or the source `folder` for any folder of images."
        )
    return getattr(datasets, name)


def split_of(cls: type, settings: Settings) -> dict[str, Any]:
    """Return the argument of a class for the split, by the name that the class uses.

    Raises:
        DarkroomError: the class has no such split.
    """
    split, takes = settings.split, parameters(cls)
    argument: dict[str, Any]
    if "train" in takes:
        argument, fits, needs = {"train": split == "train"}, split in ("train", "test"), "train or test"
    elif "split" in takes:
        argument, fits, needs = {"split": split}, split is not None, "the name of a split"
    else:
        argument, fits, needs = {}, split is None, "null, because it has no splits"
    if not fits:
        value = "null" if split is None else split
        raise DarkroomError(f"{PARAMS}: `torchvision.split` is {value}, but for {cls.__name__} it must be {needs}.")
    return argument


def parameters(cls: type) -> set[str]:
    """Return the names of the parameters of a class and of its base classes."""
    own = (vars(each)["__init__"] for each in cls.__mro__[:-1] if "__init__" in vars(each))
    return {name for init in own for name in inspect.signature(init).parameters}


def downloads() -> Path:
    """Return the folder of downloads: that of the main checkout, also in a queued experiment."""
    return Path(os.environ.get("DVC_ROOT", ".")) / ".darkroom" / "downloads" / "torchvision"


def open_or_download(cls: type, root: Path, settings: Settings) -> Any:
    """Return a data set, after downloading or unpacking missing files; images in files are returned as their paths.

    Raises:
        DarkroomError: the files are missing and cannot be downloaded, or are damaged, or an option has a wrong value;
            the message names the folder and torchvision's reason.
    """
    split, takes = split_of(cls, settings), parameters(cls)
    fixed = {name: value for name, value in {"download": False, "loader": str}.items() if name in takes}

    def opened() -> Any:
        return cls(str(root), **split, **settings.options, **fixed)

    # ImageNet unpacks its archives without an option for it.
    unpacks = hasattr(cls, "parse_archives")
    try:
        if not unpacks or ((root / split["split"]).is_dir() and (root / "meta.bin").is_file()):
            return opened()
    except (ImportError, TypeError, ValueError) as error:  # of the arguments; other errors are of the files
        raise DarkroomError(f"{PARAMS}: torchvision cannot open {cls.__name__} with these settings: {error}") from error
    except Exception as error:
        if not (settings.download and "download" in takes):
            raise _absent(cls, root, error) from error
    require_writable(downloads() / "lock")
    with (downloads() / f".{root.absolute().name}.lock").open("w") as lock:  # parts are ingested in parallel
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            _bring(cls, root, {**split, **settings.options, **({"download": True} if "download" in takes else {})})
            return opened()
        except Exception as error:
            raise _absent(cls, root, error) from error


def _bring(cls: type, root: Path, arguments: dict[str, Any]) -> None:
    """Download and unpack a data set in a temporary folder inside `root`, and move new files into place.

    Files in `root` are linked there: archives that you put there are unpacked, not downloaded, and files that another
    process moved there meanwhile are found.
    """
    require_writable(root / "download")
    for partial_folder in root.glob(".download-*"):
        shutil.rmtree(partial_folder)
    with tempfile.TemporaryDirectory(prefix=".download-", dir=root) as name:
        skipped = shutil.ignore_patterns(Path(name).name)
        shutil.copytree(root, name, ignore=skipped, copy_function=_link, dirs_exist_ok=True)
        cls(name, **arguments)
        sync_tree(Path(name))
        shutil.copytree(name, root, copy_function=os.replace, dirs_exist_ok=True)


def _link(path: str, place: str) -> None:
    try:
        os.link(os.path.realpath(path), place)
    except OSError:
        shutil.copyfile(path, place)


def _absent(cls: type, root: Path, error: BaseException) -> DarkroomError:
    """Return the error for missing files: torchvision's reason, and the folder they belong to."""
    reason = " ".join(re.sub(r"/\.download-[^/\s]*", "", str(error)).split()).rstrip(".")
    return DarkroomError(
        f"{cls.__name__} is missing or incomplete in {root}, and cannot be downloaded: {reason}. Run the command on a "
        "machine with a network and copy that folder here, or add the files yourself; "
        "`torchvision.download: true` unpacks archives."
    )
