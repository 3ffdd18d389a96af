import os
import pickle
import signal
import subprocess
import sys
import warnings
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile, PngImagePlugin

from darkroom.data.damage import DamageError, Reason
from darkroom.data.decoding import FORMATS, _strict, open_image
from data.pictures import chunk, noise, pictures, png, sized

MANY = 10**6  # pixels


def reason(data: bytes, max_pixels: int = MANY) -> Reason | None:
    """Return why a file cannot be opened; None where it can."""
    try:
        open_image(data, max_pixels)
    except DamageError as error:
        assert error.detail or error.reason == Reason.EMPTY
        assert " at 0x" not in error.detail
        return error.reason
    return None


@pytest.mark.parametrize("name", pictures())
def test_every_format_is_opened_with_its_first_picture(name: str) -> None:
    image = open_image(pictures()[name], MANY)
    assert image.size == (24, 20)
    assert image.format in FORMATS
    exact = (
        "png",
        "png, animated",
        "webp, lossless",
        "webp, animated",
        "bmp",
        "tiff",
        "tiff, lzw",
        "tiff, pages",
        "ppm",
    )
    if name in exact:
        assert (np.asarray(image.convert("RGB")) == noise(20, 24)).all()


@pytest.mark.parametrize("name", pictures())
def test_what_comes_after_the_picture_does_not_matter(name: str) -> None:
    data = pictures()[name]
    assert open_image(data + b"\0garbage\xff\xda" * 9, MANY).tobytes() == open_image(data, MANY).tobytes()


@pytest.mark.parametrize("name", pictures())
@settings(max_examples=25)
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_file_cut_anywhere_is_whole_or_refused(name: str, share: float) -> None:
    data = pictures()[name]
    cut = data[: int(share * len(data))]
    try:
        image = open_image(cut, MANY)
    except DamageError as error:
        begun = any(format.signature.match(cut) for format in FORMATS.values())
        wanted = {Reason.TRUNCATED} if begun else {Reason.NOT_AN_IMAGE} if cut else {Reason.EMPTY}
        assert error.reason in wanted | ({Reason.CORRUPT} if name.startswith(("avif", "tiff")) else set())
    else:
        assert image.tobytes() == open_image(data, MANY).tobytes()


@pytest.mark.parametrize("name", ["jpeg", "jpeg, thumbnail", "jpeg, progressive", "jpeg 2000"])
def test_a_download_that_was_given_its_space_and_never_finished_is_truncated(name: str) -> None:
    data = pictures()[name]
    for share in (0.7, 0.9, 0.97):
        kept = int(share * len(data))
        assert reason(data[:kept] + bytes(len(data) - kept)) == Reason.TRUNCATED


@pytest.mark.parametrize("name", pictures())
@settings(max_examples=25)
@given(places=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=6))
def test_changed_bytes_never_stop_a_part(name: str, places: list[tuple[float, int]]) -> None:
    data = bytearray(pictures()[name])
    for place, value in places:
        data[int(place * len(data))] = value
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reason(bytes(data))


@given(st.integers(8, len(pictures()["png"]) - 1), st.integers(0, 7))
def test_no_changed_bit_changes_the_pixels_of_a_png(place: int, bit: int) -> None:
    data = bytearray(pictures()["png"])
    data[place] ^= 1 << bit
    try:
        assert (np.asarray(open_image(bytes(data), MANY)) == noise(20, 24)).all()
    except DamageError as error:
        assert error.reason in (Reason.CORRUPT, Reason.TRUNCATED)


def test_the_checksums_of_a_png_are_compared() -> None:
    row = bytes(range(4))  # the data go on after the last row, so that their own checksum is never come to
    data = bytearray(png(3, 1, 8, 0, row * 2, level=0))
    assert reason(bytes(data)) is None
    data[data.index(row) + 1] ^= 1
    assert np.asarray(Image.open(BytesIO(data))).tolist() == [[0, 2, 3]]
    with pytest.raises(DamageError, match="corrupt: PNG: wrong checksum of IDAT"):
        open_image(bytes(data), MANY)


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 500,
        b"<!DOCTYPE html><html><body>404 Not Found</body></html>",
        b"BMW builds cars and motorcycles.",
        b"P3 is a way to write pixels as text",
    ],
)
def test_what_is_no_image_is_called_so(data: bytes) -> None:
    with pytest.raises(DamageError, match="begins with") as raised:
        open_image(data, MANY)
    assert raised.value.reason == Reason.NOT_AN_IMAGE


@pytest.mark.parametrize(
    ("name", "data"),
    {
        "HEIC": b"\0\0\0\x18ftypheic\0\0\0\0mif1heic",  # a telephone's photograph
        "JPEG XL": b"\xff\x0a\x7f",
        "PSD": b"8BPS\0\x01",
        "PDF": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3",
        "PostScript": b"%!PS-Adobe-3.0 EPSF-3.0",
        "SVG": b"<?xml version='1.0'?>\n<!-- made by hand -->\n<svg xmlns='http://www.w3.org/2000/svg'/>",
    }.items(),
)
def test_formats_that_are_not_read_are_named(name: str, data: bytes) -> None:
    extra = {"HEIC": "HEIF", "JPEG XL": "JXL"}.get(name)
    if extra in FORMATS:
        pytest.skip(f"the extra `formats` is installed, which reads {name}")
    with pytest.raises(DamageError, match=f"not_an_image: {name}: not read; convert it to PNG or JPEG"):
        open_image(data, MANY)
    if extra:
        with pytest.raises(DamageError, match=r"pip install -e '\.\[formats\]'"):
            open_image(data, MANY)


@pytest.mark.parametrize(("plugin", "name"), [("pillow_heif", "HEIF"), ("pillow_jxl", "JXL")])
def test_formats_of_the_extra_are_read(plugin: str, name: str) -> None:
    module = pytest.importorskip(plugin, reason=f"{plugin}, of the extra `formats`, is not installed")
    if name == "HEIF":
        module.register_heif_opener()
    file = BytesIO()
    Image.new("RGB", (24, 20), (200, 100, 0)).save(file, name)
    image = open_image(file.getvalue(), MANY)
    assert (image.format, image.size) == (name, (24, 20))
    assert np.abs(np.asarray(image.convert("RGB")).astype(int) - (200, 100, 0)).max() < 8
    assert reason(file.getvalue(), 24 * 20 - 1) == Reason.BOMB
    assert reason(file.getvalue()[:-30]) in (Reason.TRUNCATED, Reason.CORRUPT)


def test_nothing_in_a_file_is_run(tmp_path: Path) -> None:
    trace = tmp_path / "trace"

    class Payload:
        def __reduce__(self) -> tuple:
            return Path.touch, (trace,)

    assert reason(pickle.dumps(Payload())) == Reason.NOT_AN_IMAGE
    postscript = (
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(" + str(trace).encode() + b") (w) file\n"
    )
    assert reason(postscript) == Reason.NOT_AN_IMAGE
    assert not trace.exists()


def test_an_empty_file_is_called_so() -> None:
    assert reason(b"") == Reason.EMPTY


KINDS = ["png", "jpeg", "gif", "bmp", "ppm", "tiff", "jpeg 2000"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_size_of_zero_is_called_so(kind: str) -> None:
    for size in ((0, 20), (24, 0), (0, 0)):
        assert reason(sized(pictures()[kind], kind, *size)) == Reason.ZERO_SIZE, size
    assert reason(sized(pictures()[kind], kind, 24, 20)) is None


LARGEST = {"webp, lossless": 16_384, "jpeg": 65_500, "gif": 65_535}


@pytest.mark.parametrize("kind", [*KINDS, "webp, lossless"])
def test_a_bomb_is_refused_before_it_takes_memory(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    side = LARGEST.get(kind, 100_000)
    bomb = sized(pictures()[kind], kind, side, side)
    monkeypatch.setattr(Image.core, "new", pytest.fail)
    assert reason(bomb) == Reason.BOMB
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    assert reason(bomb) == Reason.BOMB


def test_memory_stays_flat_under_a_bomb() -> None:
    code = """
import resource, sys
from darkroom.data.damage import DamageError
from darkroom.data.decoding import _strict, open_image
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try: open_image(sys.stdin.buffer.read(), 10**8)
except DamageError as error: print(error.reason, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    bomb = sized(pictures()["webp, lossless"], "webp, lossless", 16_384, 16_384)  # 1 GB
    made = subprocess.run([sys.executable, "-c", code], input=bomb, capture_output=True, check=True)
    name, grown = made.stdout.split()
    assert name == b"bomb"
    assert int(grown) < 50_000 * (1024 if sys.platform == "darwin" else 1)  # KB


@pytest.mark.parametrize("pillow", [None, 1, 10**9])
def test_the_limit_is_ours_and_pillow_keeps_its_own(pillow: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", pillow)
    for data in pictures().values():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert reason(data, 24 * 20) is None
        assert reason(data, 24 * 20 - 1) == Reason.BOMB
    assert pillow == Image.MAX_IMAGE_PIXELS


def test_half_pictures_are_refused_where_the_process_lets_them_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    for name in ("png", "jpeg", "gif", "bmp"):
        assert reason(pictures()[name][:-200]) == Reason.TRUNCATED
    assert ImageFile.LOAD_TRUNCATED_IMAGES


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_in_the_middle_of_a_picture_opens_others() -> None:
    with _strict(MANY):  # as if another thread were decoding
        if not (child := os.fork()):
            signal.alarm(20)
            os._exit(reason(pictures()["png"]) is not None)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("kind", [b"zTXt", b"iTXt", b"iCCP"])
def test_a_bomb_in_the_metadata_of_a_png_is_refused(kind: bytes) -> None:
    packed = zlib.compress(bytes(2 * PngImagePlugin.MAX_TEXT_CHUNK))
    text = {b"zTXt": b"k\0\0", b"iTXt": b"k\0\1\0\0\0", b"iCCP": b"k\0\0"}[kind] + packed
    assert reason(png(1, 1, 8, 0, b"\0\0", chunk(kind, text))) == Reason.BOMB


class Failing(ImageFile.ImageFile):
    """A picture in whose decoder something goes wrong."""

    error: BaseException

    def _open(self) -> None:
        self._mode, self._size = "L", (2, 2)

    def load(self) -> None:
        raise self.error


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        IndexError(),
        OSError("in <_io.BytesIO object at 0x7f1>"),
    ],
)
def test_any_error_of_a_decoder_is_damage(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Failing, "error", error, raising=False)
    old = FORMATS["GIF"]
    monkeypatch.setitem(FORMATS, "GIF", type(old)(old.signature, Failing, old.extensions))
    assert reason(pictures()["gif"]) == (Reason.BOMB if isinstance(error, MemoryError) else Reason.CORRUPT)


def test_details_are_the_same_each_time() -> None:
    def details() -> list[str]:
        found = []
        for data in pictures().values():
            with pytest.raises(DamageError) as raised:
                open_image(data[: len(data) // 2] if data[:3] != b"\xff\xd8\xff" else data[:100], 479)
            found.append(str(raised.value))
        return found

    assert details() == details()


@pytest.mark.parametrize(
    ("depth", "colour", "row", "key", "alpha"),
    [
        (8, 0, bytes([2, 255]), b"\0\2", [0, 255]),
        (1, 0, b"\x40", b"\0\1", [255, 0]),
        (2, 0, b"\x60", b"\0\2", [255, 0]),  # levels 1 and 2
        (4, 0, b"\x2f", b"\0\x0f", [255, 0]),
        (8, 2, bytes([1, 2, 3, 4, 5, 6]), bytes([0, 4, 0, 5, 0, 6]), [255, 0]),
        (16, 2, bytes([1, 200, 2, 200, 3, 200, 4, 4, 5, 5, 6, 6]), bytes([1, 200, 2, 200, 3, 200]), [0, 255]),
    ],
)
def test_the_transparent_colour_of_a_png_is_found(depth: int, colour: int, row: bytes, key: bytes, alpha: list) -> None:
    image = open_image(png(2, 1, depth, colour, b"\0" + row, chunk(b"tRNS", key)), MANY)
    assert np.asarray(image.convert("RGBA"))[0, :, 3].tolist() == alpha
