"""Small data sets in the real formats of torchvision's, and the checksums that make its classes take them."""

import gzip
import hashlib
import io
import pickle
import tarfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

CIFAR_NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


def pixels(count: int, *shape: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


def write_mnist(root: Path, images: NDArray[np.uint8], labels: NDArray[np.uint8], patch) -> Path:
    """Write the four gzipped idx files; the training half and, the same again, the test half."""
    from torchvision.datasets import MNIST

    raw = root / "MNIST" / "raw"
    raw.mkdir(parents=True)
    resources = []
    for half in ("train", "t10k"):
        header = b"".join(number.to_bytes(4, "big") for number in (0x803, *images.shape))
        for name, data in (
            (f"{half}-images-idx3-ubyte.gz", header + images.tobytes()),
            (f"{half}-labels-idx1-ubyte.gz", b"\0\0\x08\x01" + len(labels).to_bytes(4, "big") + labels.tobytes()),
        ):
            (raw / name).write_bytes(gzip.compress(data, mtime=0))
            resources.append((name, md5(raw / name)))
    patch.setattr(MNIST, "resources", resources)
    return root


def write_cifar10(root: Path, images: NDArray[np.uint8], labels: list[int], patch) -> Path:
    """Write cifar-10-python.tar.gz: five batches of the images (N, 32, 32, 3), and one of two to test."""
    from torchvision.datasets import CIFAR10

    root.mkdir(parents=True)
    rows = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    parts = np.array_split(np.arange(len(images)), 5)
    members = {
        f"data_batch_{n + 1}": {"data": rows[part], "labels": [labels[i] for i in part]} for n, part in enumerate(parts)
    }
    members["test_batch"] = {"data": rows[:2], "labels": labels[:2]}
    members["batches.meta"] = {"label_names": CIFAR_NAMES}
    with tarfile.open(root / "cifar-10-python.tar.gz", "w:gz") as tar:
        for name, value in members.items():
            data = pickle.dumps(value, protocol=2)
            members[name] = hashlib.md5(data).hexdigest()
            info = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    patch.setattr(CIFAR10, "tgz_md5", md5(root / "cifar-10-python.tar.gz"))
    patch.setattr(CIFAR10, "train_list", [[name, members[name]] for name in members if name.startswith("data")])
    patch.setattr(CIFAR10, "test_list", [["test_batch", members["test_batch"]]])
    patch.setattr(CIFAR10, "meta", {**CIFAR10.meta, "md5": members["batches.meta"]})
    return root


def write_svhn(root: Path, images: NDArray[np.uint8], labels: list[int], patch) -> Path:
    """Write train_32x32.mat: images (N, 32, 32, 3), and labels of which 10 stands for the digit 0."""
    from scipy.io import savemat
    from torchvision.datasets import SVHN

    root.mkdir(parents=True)
    savemat(root / "train_32x32.mat", {"X": images.transpose(1, 2, 3, 0), "y": np.array(labels, np.uint8)[:, None]})
    patch.setattr(SVHN, "split_list", {"train": ["", "train_32x32.mat", md5(root / "train_32x32.mat")]})
    return root


def write_stl10(
    root: Path, labelled: NDArray[np.uint8], labels: list[int], unlabelled: NDArray[np.uint8], patch
) -> Path:
    """Write the binary files of STL10: images (N, 96, 96, 3) by columns, labels from 1."""
    from torchvision.datasets import STL10

    folder = root / "stl10_binary"
    folder.mkdir(parents=True)

    def columns(images: NDArray[np.uint8]) -> bytes:
        return images.transpose(0, 3, 2, 1).tobytes()

    for name, data in (
        ("train_X.bin", columns(labelled)),
        ("train_y.bin", bytes(labels)),
        ("unlabeled_X.bin", columns(unlabelled)),
        ("test_X.bin", columns(labelled)),
        ("test_y.bin", bytes(labels)),
    ):
        (folder / name).write_bytes(data)
    (folder / "class_names.txt").write_text("airplane\nbird\ncar\n")
    for attribute in ("train_list", "test_list"):
        named = [[name, md5(folder / name)] for name, _ in getattr(STL10, attribute)]
        patch.setattr(STL10, attribute, named)
    return root


def encoded(image: NDArray[np.uint8], format: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format)
    return buffer.getvalue()


def write_imagenette(root: Path, images: NDArray[np.uint8]) -> Path:
    """Write imagenette2-160/train/WNID/NAME.JPEG, the images in turn in three classes, lossless inside."""
    for number, image in enumerate(images):
        wnid = ("n01440764", "n02102040", "n03888257")[number % 3]
        path = root / "imagenette2-160" / "train" / wnid / f"{wnid}_{number}.JPEG"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(image))
    (root / "imagenette2-160" / "val").mkdir()
    return root


def write_imagenet(root: Path, images: NDArray[np.uint8], patch) -> Path:
    """Write the devkit and the archive of the validation images, in two classes in turn, as the site gives them."""
    from scipy.io import savemat
    from torchvision.datasets import imagenet

    root.mkdir(parents=True)
    synsets = np.array(
        [
            (1, "n01440764", "tench, Tinca tinca", "a fish", 0),
            (2, "n01443537", "goldfish", "a fish", 0),
            (3, "n0", "fish", "", 2),
        ],
        dtype=[(name, object) for name in ("ILSVRC2012_ID", "WNID", "words", "gloss", "num_children")],
    )
    meta = io.BytesIO()
    savemat(meta, {"synsets": synsets})
    truth = "".join(f"{number % 2 + 1}\n" for number in range(len(images))).encode()
    with tarfile.open(root / "ILSVRC2012_devkit_t12.tar.gz", "w:gz") as tar:
        _add(tar, "ILSVRC2012_devkit_t12/data/meta.mat", meta.getvalue())
        _add(tar, "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt", truth)
    with tarfile.open(root / "ILSVRC2012_img_val.tar", "w") as tar:
        for number, image in enumerate(images):
            _add(tar, f"ILSVRC2012_val_{number + 1:08d}.JPEG", encoded(image, "JPEG"))
    sums = {"devkit": "ILSVRC2012_devkit_t12.tar.gz", "val": "ILSVRC2012_img_val.tar"}
    patch.setattr(imagenet, "ARCHIVE_META", {key: (name, md5(root / name)) for key, name in sums.items()})
    return root


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))
