"""Image sizes and shrinking."""

import io

import pytest

from grounding_rewards.data.images import image_size, shrink_image

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


def test_shrink():
    film = Image.new("L", (301, 97))
    assert shrink_image(film, 301 * 97) is film
    shrunk = shrink_image(film, 5000)
    assert shrunk.width * shrunk.height <= 5000
    assert abs(shrunk.width / shrunk.height - 301 / 97) < 0.1
    assert shrink_image(Image.new("L", (5000, 1)), 100).size == (100, 1)  # the short side stays
