"""Image sizes."""

import io

import pytest

from grounding_rewards.data.images import image_size, shrunken_size

Image = pytest.importorskip("PIL.Image", reason="needs the train extra")


def test_image_size_reads_the_header_upright():
    film = Image.new("L", (30, 20))
    upright, turned = io.BytesIO(), io.BytesIO()
    film.save(upright, format="PNG")
    exif = Image.Exif()
    exif[0x0112] = 6
    film.save(turned, format="JPEG", exif=exif)
    assert image_size(film) == (30, 20)
    assert image_size({"bytes": upright.getvalue(), "path": None}) == (30, 20)
    assert image_size({"bytes": turned.getvalue(), "path": None}) == (20, 30)


def test_image_size_of_a_file(tmp_path):
    Image.new("L", (30, 20)).save(tmp_path / "film.png")
    assert image_size({"bytes": None, "path": str(tmp_path / "film.png")}) == (30, 20)


def test_shrunken_size():
    assert shrunken_size(301, 97, 301 * 97) == (301, 97)
    width, height = shrunken_size(301, 97, 5000)
    assert width * height <= 5000
    assert abs(width / height - 301 / 97) < 0.1
    assert shrunken_size(5000, 1, 100) == (100, 1)  # the short side stays
