import warnings
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageCms

from darkroom.data.damage import DamageError, Reason
from darkroom.data.decoding import open_image
from darkroom.data.images import ImageSpec
from darkroom.data.preparing import FILTERS, Preparation, blank, prepare, upright_size
from darkroom.rng import generator
from data.making import preparation
from data.pictures import P3, SRGB, chunk, cmyk_profile, grey_profile, noise, png, rgb_profile, saved, srgb

CROPS = ["center", "adm", "random"]
MODES = ["1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "LAB", "HSV"]
MODES += ["I;16", "I;16B", "I", "F"]
ALPHA = ("LA", "La", "PA", "RGBA", "RGBa")


def how(size: int = 4, channels: str = "RGB", **changes: object) -> Preparation:
    return preparation(ImageSpec(size, channels, "png"), **changes)


def prepared(image: Image.Image | bytes, channels: str = "RGB", size: int | None = None, **changes: object) -> NDArray:
    """Prepare an image or a file; at its own size, unless one is given."""
    image = open_image(image, 10**6) if isinstance(image, bytes) else image
    return np.asarray(prepare(image, how(size or min(image.size), channels, **changes), "key"))


def of_mode(mode: str, width: int, height: int, seed: int = 0) -> Image.Image:
    """Noise of a mode, as if it came from a file."""
    levels = noise(height, width, 4, seed)
    match mode:
        case "F":
            return Image.fromarray(levels[..., 0].astype(np.float32) / 255)
        case "I":
            return Image.fromarray(levels[..., 0].astype(np.int32) * 257)
        case "I;16" | "I;16B":
            return Image.frombytes(mode, (width, height), levels[..., :2].tobytes())
        case "1" | "P":
            return Image.fromarray(levels[..., :3]).convert(mode)
    bands = len(Image.new(mode, (1, 1)).getbands())
    return Image.frombytes(mode, (width, height), np.ascontiguousarray(levels[..., :bands]).tobytes())


def found(image: Image.Image, channels: str = "RGB", size: int = 4) -> Reason | None:
    """What `blank` says of an image and what became of it."""
    finding = blank(image, prepare(image, how(size, channels), "key"))
    return finding and finding.reason


def test_images_with_nothing_to_see_are_found_after_they_are_prepared() -> None:
    picture = of_mode("RGBA", 12, 9)
    clear = picture.copy()
    clear.putalpha(0)
    white = Image.new("RGBA", (12, 9), (255, 255, 255, 0))
    white.paste((255, 255, 255, 255), (3, 3, 7, 8))
    for channels in ("RGB", "RGBA", "L"):
        assert found(picture, channels) is None
        assert found(clear, channels) == found(clear.convert("LA"), channels) == Reason.TRANSPARENT
        for mode in ("1", "L", "P", "RGB", "CMYK", "I", "F", "RGBA"):
            assert found(Image.new(mode, (12, 9)), channels) == (
                Reason.TRANSPARENT if mode == "RGBA" else Reason.ONE_COLOUR
            )
    assert found(white) == Reason.ONE_COLOUR and found(white, "RGBA") is None
    detail = blank(white, prepare(white, how(), "key")).detail
    assert detail == "12 x 9 pixels, as stored 255, 255, 255; what is transparent becomes white"
    assert found(Image.new("RGB", (1, 1), (9, 8, 7)), size=8) == Reason.ONE_PIXEL
    assert found(Image.new("RGBA", (1, 1))) == Reason.TRANSPARENT


@given(
    st.sampled_from(MODES),
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(1, 20),
    st.sampled_from(["L", "RGB", "RGBA"]),
    st.sampled_from(CROPS),
    st.sampled_from(sorted(FILTERS)),
)
def test_any_image_becomes_what_was_asked_for(
    mode: str, width: int, height: int, size: int, channels: str, crop: str, resample: str
) -> None:
    image = of_mode(mode, width, height)
    before = image.tobytes(), dict(image.info)
    wanted = how(size, channels, crop=crop, resample=resample)
    made = prepare(image, wanted, "key")
    assert (made.size, made.mode, made.info) == ((size, size), channels, {})
    assert made.tobytes() == prepare(image, wanted, "key").tobytes()
    assert (image.tobytes(), image.info) == before
    image.info |= {"dpi": (300, 300), "comment": b"seen", "xmp": b"<x/>", "icc_profile": b"no profile", "exif": b"no"}
    assert made.tobytes() == prepare(image, wanted, "key").tobytes()
    if channels == "RGBA" and mode not in ALPHA:
        assert made.getchannel("A").getextrema() == (255, 255)


# Rules of modes. Each picture is a row of pixels, made into a square by repeating it.


def row(mode: str, *pixels: object) -> Image.Image:
    image = Image.new(mode, (len(pixels), len(pixels)))
    for x, pixel in enumerate(pixels):
        for y in range(len(pixels)):
            image.putpixel((x, y), pixel)  # type: ignore[arg-type]
    return image


def of_levels(levels: list, dtype: str) -> Image.Image:
    return Image.fromarray(np.tile(np.array(levels, dtype=dtype), (len(levels), 1)))


def palette(*colours: tuple[int, ...], transparency: object = None) -> bytes:
    image = of_levels(list(range(len(colours))), "uint8")
    image.putpalette([level for colour in colours for level in colour])
    return saved(image, "PNG", **({} if transparency is None else {"transparency": transparency}))


RULES: list[tuple[str, Image.Image | bytes, str, list]] = [
    ("1", row("1", 0, 255), "L", [0, 255]),
    ("L", row("L", 7, 200), "RGB", [[7] * 3, [200] * 3]),
    ("L with alpha is black and white", row("LA", (0, 255), (200, 0)), "L", [0, 255]),
    ("half alpha on white", row("LA", (0, 128), (200, 0)), "RGB", [[127] * 3, [255] * 3]),
    ("LA keeps alpha", row("LA", (9, 128), (200, 0)), "RGBA", [[9, 9, 9, 128], [0, 0, 0, 0]]),
    ("La", row("La", (50, 100), (0, 0)), "RGBA", [[127, 127, 127, 100], [0, 0, 0, 0]]),
    ("P", palette((1, 2, 3), (200, 100, 0)), "RGB", [[1, 2, 3], [200, 100, 0]]),
    ("P, one colour transparent", palette((1, 2, 3), (9, 9, 9), transparency=1), "RGB", [[1, 2, 3], [255] * 3]),
    ("P with alphas", palette((1, 2, 3), (9, 8, 7), transparency=b"\xff\x40"), "RGBA", [[1, 2, 3, 255], [9, 8, 7, 64]]),
    ("GIF", saved(row("RGB", (1, 2, 3), (200, 9, 9)).quantize(2), "GIF"), "RGB", [[1, 2, 3], [200, 9, 9]]),
    (
        "RGB with a transparent colour",
        png(1, 1, 8, 2, b"\0\1\2\3", chunk(b"tRNS", b"\0\1\0\2\0\3")),
        "RGB",
        [[255] * 3],
    ),
    ("L with a transparent level", png(1, 1, 8, 0, b"\0\5", chunk(b"tRNS", b"\0\5")), "RGBA", [[0, 0, 0, 0]]),
    ("RGBA loses hidden colours", row("RGBA", (1, 2, 3, 0), (9, 8, 7, 1)), "RGBA", [[0, 0, 0, 0], [9, 8, 7, 1]]),
    ("RGBA on white", row("RGBA", (0, 100, 200, 128), (9, 8, 7, 0)), "RGB", [[127, 177, 227], [255] * 3]),
    ("RGBA in grey", row("RGBA", (0, 0, 0, 255), (0, 0, 0, 0)), "L", [0, 255]),
    ("RGBa", row("RGBa", (50, 0, 100, 100), (0, 0, 0, 0)), "RGBA", [[127, 0, 255, 100], [0, 0, 0, 0]]),
    ("RGBX", row("RGBX", (1, 2, 3, 99), (4, 5, 6, 0)), "RGBA", [[1, 2, 3, 255], [4, 5, 6, 255]]),
    ("RGB in grey", row("RGB", (255, 0, 0), (0, 0, 255)), "L", [76, 29]),  # ITU-R 601: 0.299, 0.587, 0.114
    ("CMYK", row("CMYK", (0, 0, 0, 0), (255, 0, 0, 0), (0, 0, 0, 255)), "RGB", [[255] * 3, [0, 255, 255], [0] * 3]),
    ("YCbCr", row("YCbCr", (128, 128, 128), (255, 128, 128)), "RGB", [[128] * 3, [255] * 3]),
    ("HSV", row("HSV", (0, 255, 255), (0, 0, 100)), "RGB", [[255, 0, 0], [100] * 3]),
    ("16 bits", of_levels([0, 128, 129, 32768, 65406, 65535], "uint16"), "L", [0, 0, 1, 128, 254, 255]),
    ("16 bits, PNG", saved(of_levels([0, 300, 65535], "uint16"), "PNG"), "L", [0, 1, 255]),
    ("16 bits, TIFF", saved(of_levels([0, 300, 65535], "uint16"), "TIFF"), "L", [0, 1, 255]),
    ("16 bits, big end first", saved(of_levels([0, 300, 65535], ">u2"), "TIFF"), "RGB", [[0] * 3, [1] * 3, [255] * 3]),
    ("16 bits, PGM", b"P5 2 1 65535 \0\0\xff\xff", "L", [0]),
    ("12 bits, PGM", b"P5 1 1 4095 \x0f\xff", "L", [255]),
    ("16 bits, a transparent level", png(1, 1, 16, 0, b"\0\1\2", chunk(b"tRNS", b"\1\2")), "RGBA", [[0, 0, 0, 0]]),
    ("16 bits of RGB: the high byte", png(1, 1, 16, 2, b"\0\0\xff\x80\0\xff\xff"), "RGB", [[0, 128, 255]]),
    ("I within 16 bits", of_levels([0, 65535], "int32"), "L", [0, 255]),
    ("F", of_levels([0, 0.5, 1], "float32"), "L", [0, 128, 255]),
]


@pytest.mark.parametrize(("name", "image", "channels", "pixels"), RULES, ids=[rule[0] for rule in RULES])
def test_rules_of_modes(name: str, image: Image.Image | bytes, channels: str, pixels: list) -> None:
    made = prepared(image, channels)
    assert made[0].tolist() == pixels[: len(made)], name


@pytest.mark.parametrize(
    "image",
    [of_levels([-1, 5], "int32"), of_levels([0, 65536], "int32"), of_levels([0, 1.5], "float32"),
     of_levels([-0.1, 0], "float32"), of_levels([0, np.nan], "float32"), of_levels([0, np.inf], "float32")],
)  # fmt: skip
def test_numbers_that_are_no_shades_are_refused(image: Image.Image) -> None:
    with pytest.raises(DamageError) as raised:
        prepared(image)
    assert raised.value.reason == Reason.UNSUPPORTED


def test_lab_comes_into_srgb() -> None:
    greys = row("LAB", (0, 128, 128), (128, 128, 128), (255, 128, 128))  # L* 0, 50 and 100; no a, no b
    made = prepared(saved(greys, "TIFF")).astype(int)
    assert np.abs(made[0] - [[0], [119], [255]]).max() <= 1
    red = prepared(row("LAB", (136, 128 + 80, 128 + 67))).astype(int)  # 53.2, 80.1, 67.2 under D65
    assert np.abs(red[0, 0] - (255, 0, 0)).max() <= 15


def test_adobes_inverted_cmyk_is_set_right() -> None:
    ink = Image.new("CMYK", (16, 16), (255, 0, 0, 0))  # Pillow, like Photoshop, writes it inverted, and marks it so
    data = saved(ink, "JPEG", quality=100)
    assert b"Adobe" in data
    assert np.abs(prepared(data)[0, 0].astype(int) - (0, 255, 255)).max() <= 3


# Orientation.

UPRIGHT: dict[int, Callable[[NDArray], NDArray]] = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
    8: lambda a: np.rot90(a),
}


@pytest.mark.parametrize(
    ("orientation", "format"), [*((orientation, "PNG") for orientation in UPRIGHT), (6, "TIFF"), (8, "WEBP")]
)
def test_photographs_are_set_upright(orientation: int, format: str) -> None:
    pixels = noise(12, 7)
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"lossless": True} if format == "WEBP" else {}
    image = open_image(saved(Image.fromarray(pixels), format, exif=exif, **options), 10**6)
    right = Image.fromarray(np.ascontiguousarray(UPRIGHT[orientation](pixels)))
    assert (prepared(image, size=5) == prepared(right, size=5)).all()
    assert upright_size(image) == right.size


@pytest.mark.parametrize("value", [0, 9, 65535])
def test_an_orientation_that_does_not_exist_is_upright(value: int) -> None:
    image = Image.fromarray(noise(4, 4))
    image.getexif()[0x0112] = value
    assert (prepared(image) == noise(4, 4)).all()


def test_damaged_exif_is_upright() -> None:
    for exif in (b"Exif\0\0MM\0*broken", b"Exif\0\0", b"nothing"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert (prepared(saved(Image.fromarray(noise(4, 4)), "PNG", exif=exif)) == noise(4, 4)).all()


# Profiles.


def test_wide_colours_come_into_srgb() -> None:
    pixels = noise(16, 16)
    image = Image.fromarray(pixels)
    light = (pixels / 255.0) ** 2.25
    wanted = srgb(light @ (np.linalg.inv(SRGB) @ P3).T)
    for format, options in (("PNG", {}), ("TIFF", {}), ("WEBP", {"lossless": True})):
        made = prepared(saved(image, format, icc_profile=rgb_profile(P3, 2.25), **options))
        assert np.abs(made - wanted).max() <= 3, format
    assert np.abs(pixels - wanted).max() > 20


def test_the_profile_counts_beside_alpha_too() -> None:
    image = Image.fromarray(noise(8, 8, 4))
    image.info["icc_profile"] = rgb_profile(P3, 2.25)
    opaque = image.convert("RGB")
    made = prepared(image, "RGBA")
    assert (made[..., :3] == prepared(opaque) * (made[..., 3:] > 0)).all()
    assert (made[..., 3] == np.asarray(image)[..., 3]).all()


def test_grey_and_cmyk_profiles_are_applied() -> None:
    levels = of_levels([0, 64, 128, 255], "uint8")
    levels.info["icc_profile"] = grey_profile(1.0)
    assert np.abs(prepared(levels, "L")[0] - srgb(np.array([0, 64, 128, 255]) / 255)).max() <= 2
    ink = row("CMYK", (0, 0, 0, 0), (255, 0, 0, 0), (0, 255, 255, 0), (255, 255, 255, 255))
    ink.info["icc_profile"] = cmyk_profile(128)  # L* 50
    assert np.abs(prepared(ink)[0].astype(int) - [[255], [119], [119], [0]]).max() <= 2


def test_srgb_in_another_hand_changes_nothing() -> None:
    image = Image.fromarray(noise(8, 8))
    image.info["icc_profile"] = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    assert (prepared(image) == noise(8, 8)).all()


@pytest.mark.parametrize(
    "profile", [b"", b"no profile", rgb_profile(P3, 2.2)[:150], cmyk_profile(9), grey_profile(1.0), "text", 7]
)
def test_a_profile_that_does_not_fit_is_ignored(profile: object) -> None:
    image = Image.fromarray(noise(8, 8))
    image.info["icc_profile"] = profile
    assert (prepared(image) == noise(8, 8)).all()


# Transparency.


@pytest.mark.parametrize(
    ("crop", "resample"), [*(("center", name) for name in sorted(FILTERS)), ("adm", "bicubic"), ("random", "bicubic")]
)
def test_hidden_colours_do_not_bleed_in(crop: str, resample: str) -> None:
    pixels = np.zeros((24, 24, 4), dtype=np.uint8)
    pixels[:, :, 1] = 255  # green, and invisible
    pixels[6:19, 6:19] = (255, 255, 255, 255)
    made = prepared(Image.fromarray(pixels), "RGBA", size=7, crop=crop, resample=resample)
    assert (made[made[..., 3] > 0][:, :3] >= 250).all()  # white as far as it is seen
    assert (prepared(Image.fromarray(pixels), size=7, crop=crop, resample=resample) >= 250).all()


@pytest.mark.parametrize("crop", CROPS)
def test_hidden_colours_change_no_byte(crop: str) -> None:
    pixels = noise(24, 24, 4)
    pixels[:, :9, 3] = 0
    other = np.where(pixels[..., 3:] == 0, 255 - pixels, pixels)
    other[..., 3] = pixels[..., 3]
    for size in (7, 24):
        made, same = (prepared(Image.fromarray(each), "RGBA", size, crop=crop) for each in (pixels, other))
        assert made.tobytes() == same.tobytes()


@given(st.integers(0, 10**6))
@settings(max_examples=20)
def test_what_is_transparent_is_averaged_as_if_it_lay_on_white(seed: int) -> None:
    pixels = noise(24, 24, 4, seed)
    share = pixels[..., 3:] / 255
    white = pixels[..., :3] * share + 255 * (1 - share)  # (24, 24, 3)
    wanted = white.reshape(6, 4, 6, 4, 3).mean(axis=(1, 3))
    assert np.abs(prepared(Image.fromarray(pixels), size=6, resample="box") - wanted).max() <= 3


# Crops.


def test_center_is_the_middle_square_in_one_step() -> None:
    pixels = noise(12, 31)
    middle = pixels[:, 9:21].reshape(4, 3, 4, 3, 3).mean(axis=(1, 3))
    assert np.abs(prepared(Image.fromarray(pixels), size=4, resample="box") - middle).max() <= 1


def weights(taps: int, wanted: int, kernel: Callable[[NDArray], NDArray], support: float) -> NDArray[np.float64]:
    """Return (wanted, taps): a row's shares of the pixels under a kernel, widened where the image shrinks."""
    scale = taps / wanted
    wide = max(scale, 1.0)
    centres = (np.arange(wanted) + 0.5) * scale
    distance = (np.arange(taps)[None] + 0.5 - centres[:, None]) / wide
    fractions = np.where(np.abs(distance) < support, kernel(distance), 0.0)
    return fractions / fractions.sum(axis=1, keepdims=True)


def bicubic(x: NDArray) -> NDArray:
    """Keys, "Cubic convolution interpolation for digital image processing", 1981, a = -0.5."""
    x, a = np.abs(x), -0.5
    near = (a + 2) * x**3 - (a + 3) * x**2 + 1
    return np.where(x < 1, near, a * (x**3 - 5 * x**2 + 8 * x - 4))


def box(x: NDArray) -> NDArray:
    return ((x > -0.5) & (x <= 0.5)).astype(float)


def scaled(image: NDArray, height: int, width: int, kernel: Callable, support: float) -> NDArray[np.float64]:
    down = weights(image.shape[0], height, kernel, support)
    across = weights(image.shape[1], width, kernel, support)
    return np.einsum("hy,yxc,wx->hwc", down, image.astype(np.float64), across)


def adm(image: NDArray, size: int) -> NDArray[np.float64]:
    """ADM's crop by its description, in float64."""
    while min(image.shape[:2]) >= 2 * size:
        image = scaled(image, image.shape[0] // 2, image.shape[1] // 2, box, 0.501)
    height, width = (round(length * size / min(image.shape[:2])) for length in image.shape[:2])
    image = scaled(image, height, width, bicubic, 2.0)
    top, left = (height - size) // 2, (width - size) // 2
    return image[top : top + size, left : left + size]


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 16))
def test_adm_is_halving_then_bicubic_then_the_middle(width: int, height: int, size: int) -> None:
    long, short = max(width, height), min(width, height)
    if long > 8 * short:
        width, height = min(width, 8 * short), min(height, 8 * short)
    halvings = [(length >> k) for length in (width, height) for k in range(10) if min(width, height) >> k >= 2 * size]
    assume(not any(length % 4 == 1 for length in halvings))  # there a pixel lies half in one box and half in the next
    pixels = 64 + noise(height, width) // 2  # so that no sum of weights leaves the levels
    made = prepared(Image.fromarray(pixels), size=size, crop="adm", resample="bicubic")
    assert np.abs(made - adm(pixels, size)).max() <= 4  # Pillow rounds to whole levels after each direction


@pytest.mark.parametrize("crop", CROPS)
@pytest.mark.parametrize("size", [(60_000, 1), (1, 60_000)])
def test_the_longest_image_is_not_enlarged_as_a_whole(crop: str, size: tuple[int, int]) -> None:
    made = prepared(Image.new("RGB", size, (9, 8, 7)), size=256, crop=crop)  # 60,000 x 256 squared would be 16 GB
    assert (made == (9, 8, 7)).all()


def test_a_random_crop_lies_where_the_key_says() -> None:
    image = Image.fromarray(np.tile(np.arange(200, dtype=np.uint8), (20, 1)))

    def left(key: str, seed: int = 0) -> int:
        return int(np.asarray(prepare(image, how(20, "L", crop="random", seed=seed), key))[0, 0])

    places = [left(str(key)) for key in range(300)]
    assert places == [left(str(key)) for key in range(300)]
    assert places != [left(str(key), seed=1) for key in range(300)]
    assert min(places) < 10 < 170 < max(places) <= 180
    assert abs(np.mean(places) - 90) < 12  # four times the mean's error
    assert left("a") == generator(0, "crop/a").integers(0, 181)


def test_a_random_crop_of_an_upright_image_is_drawn_from_top_to_bottom() -> None:
    image = Image.fromarray(np.tile(np.arange(200, dtype=np.uint8)[:, None], (1, 20)))
    places = {int(np.asarray(prepare(image, how(20, "L", crop="random"), str(key)))[0, 0]) for key in range(50)}
    assert len(places) > 25


def test_small_images_are_enlarged() -> None:
    for crop in CROPS:
        assert (prepared(Image.new("RGB", (3, 2), (9, 8, 7)), size=64, crop=crop) == (9, 8, 7)).all()


@pytest.mark.parametrize("crop", CROPS)
def test_an_image_that_fits_is_not_touched(crop: str) -> None:
    pixels = noise(9, 9, 4)
    pixels[pixels[..., 3] == 0] = 0
    assert (prepared(Image.fromarray(pixels), "RGBA", size=9, crop=crop) == pixels).all()


def test_the_filters_differ() -> None:
    image = Image.fromarray(noise(8, 8))
    made = {prepared(image, size=5, resample=name).tobytes() for name in FILTERS}
    assert len(made) == len({*FILTERS.values()})  # area is box


def test_fine_patterns_become_grey_and_not_moire() -> None:
    stripes = np.zeros((256, 256), dtype=np.uint8)
    stripes[:, ::2] = 255
    for crop in CROPS:
        for resample in [*FILTERS][1:]:  # without nearest
            made = prepared(Image.fromarray(stripes), "L", size=48, crop=crop, resample=resample).astype(int)
            assert np.abs(made - 128).max() <= 30, (crop, resample)


# Limits.


def test_too_small_and_without_pixels() -> None:
    for size, least, reason in (((9, 3), 4, Reason.TOO_SMALL), ((0, 4), 1, Reason.ZERO_SIZE)):
        with pytest.raises(DamageError) as raised:
            prepare(Image.new("RGB", size), how(4, min_size=least), "key")
        assert raised.value.reason == reason
    assert prepare(Image.new("RGB", (9, 4)), how(4, min_size=4), "key").size == (4, 4)
