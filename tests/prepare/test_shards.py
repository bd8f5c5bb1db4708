"""Stored images: 8 bits, upright, of the side that was asked for, and nothing of the file but its pixels."""

import io

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from grounding_rewards.prepare.shards import store_image

RAMP = np.arange(30 * 20, dtype=np.uint16).reshape(20, 30)


def stored(path, **options):
    result = store_image(path, **options)
    image = Image.open(io.BytesIO(result.data))
    assert image.size == (result.width, result.height)
    return result, image


def saved(tmp_path, image, name="image.png", **options):
    path = tmp_path / name
    image.save(path, **options)
    return path


def test_png_is_lossless(tmp_path):
    pixels = (RAMP % 256).astype(np.uint8)
    result, image = stored(saved(tmp_path, Image.fromarray(pixels)))
    np.testing.assert_array_equal(np.asarray(image), pixels)
    assert (result.original_width, result.original_height) == (30, 20)


@pytest.mark.parametrize(
    ("side", "size"), [(None, (30, 20)), (40, (30, 20)), (30, (30, 20)), (15, (15, 10)), (10, (10, 7)), (1, (1, 1))]
)
def test_the_longest_side_shrinks_and_never_grows(tmp_path, side, size):
    result, image = stored(saved(tmp_path, Image.new("L", (30, 20))), side=side)
    assert image.size == size
    assert (result.original_width, result.original_height) == (30, 20)


@pytest.mark.parametrize(("image_format", "kind"), [("png", "PNG"), ("jpeg", "JPEG")])
def test_formats(tmp_path, image_format, kind):
    assert stored(saved(tmp_path, Image.new("L", (30, 20))), image_format=image_format)[1].format == kind


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        # smallest and largest of the image, 0 and 599
        (None, RAMP / 599 * 255),
        ((100, 355), np.clip(RAMP.astype(int) - 100, 0, 255)),
    ],
)
def test_sixteen_bits_pass_a_window(tmp_path, window, expected):
    _, image = stored(saved(tmp_path, Image.fromarray(RAMP)), window=window)
    assert image.mode == "L"
    np.testing.assert_allclose(np.asarray(image), expected, atol=0.5)


def test_colours_stay(tmp_path):
    assert stored(saved(tmp_path, Image.new("RGB", (30, 20), (200, 10, 10))))[1].mode == "RGB"


def test_images_are_turned_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    path = saved(tmp_path, Image.new("L", (30, 20)), "image.jpg", exif=exif)
    result, image = stored(path)
    assert image.size == (20, 30)
    assert not image.getexif()
    assert (result.original_width, result.original_height) == (20, 30)


@pytest.mark.parametrize("image_format", ["png", "jpeg"])
@pytest.mark.parametrize("name", ["image.png", "image.jpg"])
def test_only_pixels_are_stored(tmp_path, image_format, name):
    secret = PngImagePlugin.PngInfo()
    secret.add_text("Comment", "JANE DOE")
    exif = Image.Exif()
    exif[0x013B] = "JANE DOE"
    options = {"pnginfo": secret} if name.endswith("png") else {"comment": b"JANE DOE"}
    path = saved(tmp_path, Image.new("L", (30, 20)), name, exif=exif, icc_profile=b"JANE DOE" * 20, **options)
    assert b"JANE DOE" in path.read_bytes()
    assert b"JANE" not in stored(path, image_format=image_format)[0].data


@pytest.mark.parametrize("name", ["image.png", "image.jpg"])
def test_files_that_break_off_are_refused(tmp_path, name):
    noise = np.random.default_rng(0).integers(0, 255, (200, 200), dtype=np.uint8)
    path = saved(tmp_path, Image.fromarray(noise), name)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match="Expected an image in"):
        store_image(path)
