"""The source `torchvision`, from files in the real formats to stored images, and what it says where there are none."""

import inspect
import os
import pickle
import socket
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pyarrow.parquet as pq
import pytest

from darkroom.artifacts.manifest import read_manifest
from darkroom.check.check import read_params
from darkroom.data.damage import DamageError
from darkroom.data.decoding import open_image
from darkroom.data.images import to_array
from darkroom.data.reader import ImageShards
from darkroom.data.sources import open_source, torchvision_sets
from darkroom.data.sources.torchvision_sets import SETS, find, parameters, split_of
from darkroom.data.splits import SPLITS
from darkroom.errors import DarkroomError
from darkroom.params.ingest import Params
from darkroom.params.parts import Part
from darkroom.params.parts import Torchvision as Settings
from darkroom.stages import ingest
from data.sources import torchvision_files as made
from helpers import DIGITS

VALUES = read_params(DIGITS)
DEFAULT = {"dataset": "CIFAR10", "split": "train", "options": {}, "download": True, "mirror": True}


@pytest.fixture(autouse=True)
def no_network(tmp_path, monkeypatch):
    """Work in an empty folder; a test that reached for the network would fail."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_ROOT", raising=False)

    def refuse(*arguments, **options):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def settings(**changes) -> Settings:
    return Settings(**{**DEFAULT, "caption": "a photo of a {label}", **changes})


def opened(path: Path | None = None, **changes):
    part = Part(source="torchvision", path="data/none" if path is None else str(path))
    return open_source(part, settings(**changes))


def ingested(path: Path | None, size: int, channels: str = "RGB", processes: int = 1, **changes) -> dict:
    """Run the stage; return what is stored, by key: pixels, label, caption."""
    values = {
        "run": {**VALUES["run"], "ingest_processes": processes},
        "torchvision": {**VALUES["torchvision"], **changes},
        "ingest": {**VALUES["ingest"], "image_size": size, "channels": channels},
        "parts": {"part": {"source": "torchvision", "path": "data/none" if path is None else str(path)}},
    }
    ingest.run(Params.model_validate(values), "part")
    stored = {}
    for split in SPLITS:
        shards = ImageShards.open_parts(["part"], split)
        for row, key in enumerate(shards.keys):
            stored[key] = shards[row], shards.labels[row], shards.captions[row]
    return dict(sorted(stored.items()))


def metadata() -> dict:
    return read_manifest(Path("data/shards/part"), "shards")["source"]


def test_cifar10_from_its_archive(tmp_path, monkeypatch):
    images, labels = made.pixels(30, 32, 32, 3), [number % 10 for number in range(30)]
    root = made.write_cifar10(tmp_path / "cifar", images, labels, monkeypatch)
    stored = ingested(Path("cifar"), 32)
    assert list(stored) == [f"cifar10-train-{number:02d}" for number in range(30)]
    for number, (pixels, label, caption) in enumerate(stored.values()):
        assert (pixels == images[number].transpose(2, 0, 1)).all()
        assert label == made.CIFAR_NAMES[number % 10] and caption == f"a photo of a {label}"
    told = {"name": "torchvision", "start": 0, "stop": 30, "dataset": "CIFAR10", "split": "train", "options": {}}
    assert metadata() == {**told, "images": 30}
    assert sorted(path.name for path in root.iterdir()) == ["cifar-10-batches-py", "cifar-10-python.tar.gz"]


@pytest.mark.parametrize("processes", [1, 2])
def test_mnist_from_idx_files_in_one_process_and_in_two(tmp_path, monkeypatch, processes):
    images, labels = made.pixels(40, 28, 28), np.arange(40, dtype=np.uint8) % 10
    made.write_mnist(tmp_path / ".darkroom/downloads/torchvision/MNIST", images, labels, monkeypatch)
    stored = ingested(None, 28, "L", processes, dataset="MNIST", split="test", caption=None)
    assert list(stored) == [f"mnist-test-{number:02d}" for number in range(40)]
    for number, (pixels, label, caption) in enumerate(stored.values()):
        assert (pixels == images[number]).all() and caption is None
        assert label.startswith(f"{number % 10} - ")


def test_emnist_says_by_options_which_of_its_sets(tmp_path):
    raw = tmp_path / "emnist/EMNIST/raw"
    raw.mkdir(parents=True)
    images = made.pixels(4, 28, 28)
    header = b"".join(number.to_bytes(4, "big") for number in (0x803, *images.shape))
    (raw / "emnist-letters-test-images-idx3-ubyte").write_bytes(header + images.tobytes())
    (raw / "emnist-letters-test-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01\0\0\0\x04" + bytes([1, 2, 26, 3]))
    source = opened(tmp_path / "emnist", dataset="EMNIST", split="test", options={"split": "letters"})
    entries = list(source.entries(0, None))
    assert [entry.key for entry in entries] == [f"emnist-test-letters-{number}" for number in range(4)]
    assert [source.read(entry).label for entry in entries] == ["a", "b", "z", "c"]


def test_svhn_has_numbers_for_labels(tmp_path, monkeypatch):
    images = made.pixels(6, 32, 32, 3)
    made.write_svhn(tmp_path / "svhn", images, [1, 10, 3, 4, 5, 9], monkeypatch)
    stored = ingested(Path("svhn"), 32, dataset="SVHN")
    assert [label for _, label, _ in stored.values()] == ["1", "0", "3", "4", "5", "9"]
    assert all(
        (pixels == image.transpose(2, 0, 1)).all() for (pixels, *_), image in zip(stored.values(), images, strict=True)
    )


def test_images_without_a_label_have_none_and_no_caption(tmp_path, monkeypatch):
    labelled, more = made.pixels(3, 96, 96, 3), made.pixels(4, 96, 96, 3, seed=1)
    made.write_stl10(tmp_path / "stl", labelled, [1, 3, 2], more, monkeypatch)
    stored = ingested(Path("stl"), 96, dataset="STL10", split="train+unlabeled")
    assert next(iter(stored)) == "stl10-train_unlabeled-0"
    assert [label for _, label, _ in stored.values()] == ["airplane", "car", "bird", None, None, None, None]
    assert [caption for *_, caption in stored.values()][2:4] == ["a photo of a bird", None]
    expected = np.concatenate([labelled, more]).transpose(0, 3, 1, 2)
    assert all((pixels == image).all() for (pixels, *_), image in zip(stored.values(), expected, strict=True))


def test_a_folder_set_is_read_as_files_and_its_damage_named(tmp_path):
    images = made.pixels(12, 20, 20, 3)
    root = made.write_imagenette(tmp_path / "nette", images)
    paths = sorted(root.rglob("*.JPEG"))
    paths[1].write_bytes(b"")
    paths[5].write_bytes(paths[5].read_bytes()[:-200])
    paths[7].write_text("<html>404</html>")
    paths[9].write_bytes(paths[8].read_bytes())
    changes = {"dataset": "Imagenette", "options": {"size": "160px"}}
    stored = ingested(Path("nette"), 20, **changes)
    whole = [number for number in range(12) if number not in (1, 5, 7, 9)]
    assert list(stored) == [f"imagenette-train-160px-{number:02d}" for number in whole]
    for number, (pixels, label, _) in zip(whole, stored.values(), strict=True):
        assert (pixels == to_array(open_image(paths[number].read_bytes(), 10**6))).all()
        assert label == ["tench", "English springer", "parachute"][number // 4]
    listed = pq.read_table("data/shards/part/quarantine.parquet").to_pylist()
    out = {(row["key"][-2:], row["reason"]) for row in listed if row["action"] == "quarantine"}
    assert out == {("01", "empty"), ("05", "truncated"), ("07", "not_an_image"), ("09", "duplicate")}
    assert {row["source"] for row in listed} <= {path.relative_to(root).as_posix() for path in paths}
    assert str(tmp_path) not in str(listed)


def test_a_set_of_files_goes_to_other_processes_without_itself_and_without_torch(tmp_path):
    made.write_imagenette(tmp_path / "nette", made.pixels(300, 4, 4, 3))
    source = opened(Path("nette"), dataset="Imagenette", options={"size": "160px"})
    sent = pickle.dumps(source)
    assert len(sent) < 2000 and b"torch.vision" not in sent
    copy = pickle.loads(sent)
    entry = next(source.entries(7, 8))
    assert len(pickle.dumps(entry)) < 300
    assert copy.read(entry) == source.read(entry)
    assert copy._data is None


def test_a_folder_whose_name_is_not_utf8_is_a_class_all_the_same(tmp_path):
    images = made.pixels(4, 20, 20, 3)
    for number, name in enumerate((b"Lake", b"Lake", b"R\xfcbe", b"R\xfcbe")):
        folder = Path(os.fsdecode(os.fsencode(tmp_path / "euro/eurosat/2750") + b"/" + name))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.jpg").write_bytes(made.encoded(images[number], "JPEG") if number else b"")
    stored = ingested(Path("euro"), 20, dataset="EuroSAT", split=None)
    assert [label for _, label, _ in stored.values()] == ["Lake", r"R\xfcbe", r"R\xfcbe"]


def test_a_file_that_went_is_missing(tmp_path):
    root = made.write_imagenette(tmp_path / "nette", made.pixels(3, 4, 4, 3))
    source = opened(Path("nette"), dataset="Imagenette", options={"size": "160px"})
    entry = next(source.entries(0, 1))
    (root / entry.where).unlink()
    with pytest.raises(DamageError, match="missing"):
        source.read(entry)


def write_pets(root: Path) -> None:
    """Write Oxford's pets, whose class takes no loader: its images are opened by torchvision."""
    for folder in ("images", "annotations/trimaps"):
        (root / "oxford-iiit-pet" / folder).mkdir(parents=True)
    names = [("Abyssinian_1", 1, 1), ("beagle_1", 2, 2), ("beagle_2", 2, 2)]
    lines = [f"{name} {breed} {kind} 1\n" for name, breed, kind in names]
    (root / "oxford-iiit-pet/annotations/trainval.txt").write_text("".join(lines))
    for number, (name, *_) in enumerate(names):
        data = made.encoded(made.pixels(1, 9, 9, 3, seed=number)[0], "JPEG")
        path = root / f"oxford-iiit-pet/images/{name}.jpg"
        path.write_bytes(data[:-150] if name == "beagle_1" else data)
        (root / f"oxford-iiit-pet/annotations/trimaps/{name}.png").write_bytes(made.encoded(made.pixels(1, 9, 9)[0]))


def test_damage_is_named_where_torchvision_opens_the_files_too(tmp_path):
    write_pets(tmp_path / "pets")
    source = opened(tmp_path / "pets", dataset="OxfordIIITPet", split="trainval")
    first, second, third = source.entries(0, None)
    assert [source.read(entry).label for entry in (first, third)] == ["Abyssinian", "Beagle"]
    with pytest.raises(DamageError, match="truncated") as error:
        source.read(second)
    assert str(tmp_path) not in str(error.value)


def test_names_of_classes_are_not_given_to_other_targets(tmp_path):
    write_pets(tmp_path / "pets")
    options = {"target_types": "binary-category"}
    source = opened(tmp_path / "pets", dataset="OxfordIIITPet", split="trainval", options=options)
    assert source.read(next(source.entries(2, 3))).label == "1"
    options = {"target_types": "segmentation"}
    with pytest.raises(DarkroomError, match="not a class number"):
        list(opened(tmp_path / "pets", dataset="OxfordIIITPet", split="trainval", options=options).entries(0, None))


def test_the_order_is_not_that_of_the_file_system(tmp_path, monkeypatch):
    data = tmp_path / "sun" / "SUN397"
    for name in ("a/abbey/sun_b.jpg", "a/abbey/sun_a.jpg", "b/bar/sun_c.jpg"):
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_bytes(made.encoded(made.pixels(1, 4, 4, 3)[0], "JPEG"))
    (data / "ClassName.txt").write_text("/a/abbey\n/b/bar\n")
    forward = [entry.where for entry in opened(tmp_path / "sun", dataset="SUN397", split=None).entries(0, None)]
    found = Path.rglob
    monkeypatch.setattr(Path, "rglob", lambda *given: reversed(list(found(*given))))
    backward = [entry.where for entry in opened(tmp_path / "sun", dataset="SUN397", split=None).entries(0, None)]
    assert forward == backward == sorted(forward)


@pytest.mark.parametrize("links", [True, False])
def test_imagenet_from_its_archives_with_the_first_name_of_a_class(tmp_path, monkeypatch, links):
    """A file system without hard links has copies of them while they are unpacked."""
    if not links:
        monkeypatch.setattr(os, "link", fail(OSError(95, "Operation not supported")))
    root = made.write_imagenet(tmp_path / "net", made.pixels(5, 24, 24, 3), monkeypatch)
    stored = ingested(Path("net"), 24, dataset="ImageNet", split="val")
    assert [label for _, label, _ in stored.values()] == ["tench"] * 3 + ["goldfish"] * 2
    assert sorted(path.name for path in root.iterdir() if not path.name.startswith("ILSVRC")) == ["meta.bin", "val"]


def test_imagenet_cut_off_while_it_is_unpacked_does_not_look_whole(tmp_path, monkeypatch):
    from torchvision.datasets import imagenet

    root = made.write_imagenet(tmp_path / "net", made.pixels(5, 24, 24, 3), monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(imagenet.shutil, "move", fail(OSError(28, "No space left on device")))
        with pytest.raises(DarkroomError, match=r"ImageNet is missing or incomplete in .*net.*No space left"):
            opened(root, dataset="ImageNet", split="val")
    assert sorted(path.name for path in root.iterdir()) == ["ILSVRC2012_devkit_t12.tar.gz", "ILSVRC2012_img_val.tar"]
    assert opened(root, dataset="ImageNet", split="val").size() == 5


def fail(error: Exception):
    def called(*arguments, **options):
        raise error

    return called


@pytest.mark.parametrize("dataset", ["CIFAR10", "ImageNet"])
def test_without_a_network_the_sentence_names_set_and_folder(dataset):
    with pytest.raises(DarkroomError) as error:
        opened(dataset=dataset)
    said = str(error.value)
    assert said.startswith(f"{dataset} is missing or incomplete in .darkroom/downloads/torchvision/{dataset}")
    assert "copy that folder here" in said and ".download-" not in said
    assert dataset == "ImageNet" or "Name or service not known" in said or "urlopen error" in said
    assert not [path for path in Path(".darkroom").rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_nothing_is_downloaded_where_it_may_not_be(monkeypatch):
    monkeypatch.setattr(torchvision_sets, "_bring", fail(AssertionError("brought")))
    with pytest.raises(DarkroomError, match=r"`torchvision\.download: true` unpacks archives"):
        opened(download=False)
    assert not Path(".darkroom").exists()


def test_a_download_that_is_cut_off_leaves_nothing_that_looks_whole(tmp_path, monkeypatch):
    from torchvision.datasets import eurosat

    def unpack(url, download_root, md5, whole):
        for number in range(4):
            path = Path(download_root, "2750", "Forest", f"Forest_{number}.jpg")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(made.encoded(made.pixels(1, 8, 8, 3, seed=number)[0], "JPEG"))
            if number == 1 and not whole:
                raise URLError("connection reset")

    place = Path(".darkroom/downloads/torchvision/EuroSAT")
    (place / ".download-killed").mkdir(parents=True)
    monkeypatch.setattr(eurosat, "download_and_extract_archive", lambda *a, **k: unpack(*a, **k, whole=False))
    with pytest.raises(DarkroomError, match="connection reset"):
        opened(dataset="EuroSAT", split=None)
    assert not list(place.iterdir())
    monkeypatch.setattr(eurosat, "download_and_extract_archive", lambda *a, **k: unpack(*a, **k, whole=True))
    assert opened(dataset="EuroSAT", split=None).size() == 4
    assert [path.name for path in place.iterdir()] == ["eurosat"]
    monkeypatch.setattr(eurosat, "download_and_extract_archive", fail(AssertionError("downloaded again")))
    assert opened(dataset="EuroSAT", split=None).size() == 4


def test_a_damaged_file_that_looks_whole_is_named_and_not_taken(tmp_path, monkeypatch):
    root = made.write_mnist(tmp_path / "mnist", made.pixels(9, 28, 28), np.zeros(9, np.uint8), monkeypatch)
    opened(root, dataset="MNIST")
    path = root / "MNIST/raw/train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DarkroomError, match=r"MNIST is missing or incomplete in .*mnist"):
        opened(root, dataset="MNIST")


REFUSED = [
    ({"dataset": "cifar10"}, "is cifar10, which is not a classification set of torchvision. Use one of .*CIFAR10"),
    ({"dataset": "VOCDetection"}, r"not a classification set"),
    ({"split": "val"}, "`torchvision.split` is val, but for CIFAR10 it must be train or test"),
    ({"split": None}, "`torchvision.split` is null, but for CIFAR10 it must be train or test"),
    ({"dataset": "Food101", "split": None}, "must be the name of a split"),
    ({"dataset": "Food101", "split": "val"}, "Valid values are {'train', 'test'}"),
    ({"dataset": "ImageNet", "split": "test"}, "Valid values are {'train', 'val'}"),
    ({"dataset": "EuroSAT"}, "`torchvision.split` is train, but for EuroSAT it must be null"),
    ({"dataset": "EMNIST"}, "missing 1 required positional argument: 'split'"),
    (
        {"dataset": "Imagenette", "options": {"sise": "160px"}},
        "cannot open Imagenette with these settings: .*unexpected keyword .*sise",
    ),
    ({"options": {"root": "/"}}, "multiple values for argument .root"),
]


@pytest.mark.parametrize(("changes", "sentence"), REFUSED, ids=[sentence[:40] for _, sentence in REFUSED])
def test_what_cannot_be_is_refused_before_any_work(monkeypatch, changes, sentence):
    monkeypatch.setattr(socket, "getaddrinfo", fail(AssertionError("looked for the network")))
    with pytest.raises(DarkroomError, match=sentence):
        opened(**changes)
    assert not Path("data").exists()


def test_each_is_called_with_what_it_takes():
    wrong = []
    for dataset in SETS:
        cls = find(dataset)
        takes = set(parameters(cls))
        split = "train" if {"train", "split"} & takes else None
        options = {"split": "digits"} if dataset == "EMNIST" else {}
        try:
            given = split_of(cls, settings(dataset=dataset, split=split, options=options))
            inspect.signature(cls).bind(root="folder", **given, **options)
        except (DarkroomError, TypeError) as error:
            wrong.append((dataset, str(error)))
            continue
        if set(given) != ({"train"} if "train" in takes else {"split"} if "split" in takes else set()):
            wrong.append((dataset, given))
    assert wrong == []


def test_a_caption_holds_the_label_alone():
    with pytest.raises(ValueError, match="should match pattern"):
        settings(caption="a {word}")
    settings(caption="a {label}, {label}")
