"""The one reader of images: modes, depth, alpha, orientation, broken and hostile files; sizes; and images outside the
folder that was named, refused by everything that opens images, unless it is allowed."""

import io
import struct
import zlib

import numpy as np
import pytest

from grounding_rewards.images import decoding

pytest.importorskip("datasets", reason="needs the train extra")

from PIL import Image

from grounding_rewards.doctor.examine import examine
from grounding_rewards.doctor.rows import open_rows
from grounding_rewards.prepare import PrepareSettings, prepare_images
from grounding_rewards.prepare.load import load_split
from grounding_rewards.sources.jsonl import read_jsonl
from tests.conftest import write_lines
from tests.tables import table

# A wrist image as detectors of 14 bits give it: no pixel below 255, which `convert("RGB")` would make white.
DEEP = np.linspace(900, 16383, 30 * 20).astype(np.uint16).reshape(20, 30)
SPREAD = np.rint((DEEP - 900.0) / (16383 - 900) * 255)


def png(chunks, size=(30, 20), depth=8, colour=0):
    """A PNG file of these chunks, with a header of its own."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", *size, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(chunk(*one) for one in chunks) + chunk(b"IEND", b"")


def saved(folder, image, name, **options):
    image.save(folder / name, **options)
    return folder / name


@pytest.mark.parametrize("name", ["image.png", "image.tiff"])
@pytest.mark.parametrize("kind", table("images/tables", "images_above_8_bits_are_spread_over_all_greys"))
def test_images_above_8_bits_are_spread_over_all_greys(tmp_path, name, kind):
    if name == "image.png" and kind.endswith("4"):
        pytest.skip("PNG has 16 bits at most")
    image = decoding.open_image(saved(tmp_path, Image.fromarray(DEEP.astype(kind)), name))
    assert image.mode == "L"
    np.testing.assert_array_equal(np.asarray(image), SPREAD)
    assert (np.asarray(image) == 255).mean() < 0.01


def test_a_tiff_file_that_counts_from_white_is_turned_round(tmp_path):
    deep = saved(tmp_path, Image.fromarray(DEEP), "deep.tiff", tiffinfo={262: 0})
    np.testing.assert_array_equal(np.asarray(decoding.open_image(deep)), 255 - SPREAD)


@pytest.mark.parametrize(
    ("values", "window", "greys"),
    [
        (np.full((1, 2), 700, np.uint16), None, [0, 0]),  # one value: black
        (np.array([[0, 1000, 3000]], np.uint16), (1000, 2000), [0, 0, 255]),
        (np.array([[-5, 0, 5]], np.int32), None, [0, 128, 255]),
        (np.array([[np.nan, 1.0, np.inf, 3.0]]), None, [0, 0, 0, 255]),  # what is no number is black, and no end
        (np.array([[np.nan]]), None, [0]),
        (np.array([[0, 65535]], np.uint16), None, [0, 255]),
        # outliers of a hundredth of the pixels are cut off half the spread of all others, from 1 to 99, beyond them
        (np.array([[*range(101), 10_000]], np.uint16), None, [*np.rint(np.arange(101) * 255 / 148), 255]),
        # an object on an empty ground is none
        (np.array([[0] * 300 + [900]], np.uint16), None, [0] * 300 + [255]),
    ],
)
def test_spread(values, window, greys):
    assert decoding.spread(values, window).tolist() == [greys]


def test_pages_of_one_size_are_refused(tmp_path):
    pages = [Image.new("L", (8, 8)), Image.new("L", (8, 8)), Image.new("L", (2, 2))]
    stack = saved(tmp_path, pages[0], "stack.tiff", save_all=True, append_images=pages[1:])
    with pytest.raises(ValueError, match=r"stack\.tiff', got a file of 3 pages"):
        decoding.open_image(stack)
    with_thumbnail = saved(tmp_path, pages[0], "one.tiff", save_all=True, append_images=pages[2:])
    assert decoding.open_image(with_thumbnail).size == (8, 8)


GREY, RED = 120, (200, 10, 10)


@pytest.mark.parametrize(("mode", "colour", "shown", "pixel"), table("images/tables", "modes"))
def test_every_mode_becomes_grey_or_colour(mode, colour, shown, pixel):
    image = Image.new("RGB", (3, 2), RED).convert("P") if mode == "P" else Image.new(mode, (3, 2), tuple(colour))
    found = decoding.shown_image(image)
    assert (found.mode, list(found.convert("RGB").getpixel((0, 0)))) == (shown, pixel)
    assert decoding.small_image(image, 2).size == (2, 1)
    assert image.size == (3, 2)


def test_a_transparent_grey_or_palette_entry_becomes_black(tmp_path):
    grey = decoding.open_image(saved(tmp_path, Image.new("L", (3, 2), GREY), "grey.png", transparency=GREY))
    assert (grey.mode, grey.getpixel((0, 0))) == ("L", 0)
    palette = Image.new("RGB", (3, 2), RED).convert("P")
    image = decoding.open_image(saved(tmp_path, palette, "palette.png", transparency=palette.getpixel((0, 0))))
    assert image.getpixel((0, 0)) == (0, 0, 0)


@pytest.mark.parametrize("name", ["image.jpg", "image.png", "image.tiff"])
def test_images_are_turned_upright(tmp_path, name):
    exif = Image.Exif()
    exif[0x0112] = 6
    path = saved(tmp_path, Image.new("L", (30, 20)), name, exif=exif)
    assert decoding.open_image(path).size == decoding.image_size({"bytes": None, "path": path}) == (20, 30)
    assert decoding.image_size({"bytes": path.read_bytes(), "path": None}) == (20, 30)
    assert decoding.image_size(Image.open(io.BytesIO(path.read_bytes()))) == (20, 30)
    assert decoding.image_size(Image.new("L", (30, 20))) == (30, 20)


def broken_files(folder):
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (90, 90), dtype=np.uint8))
    for name in ("cut.jpg", "cut.png", "cut.tiff", "cut.bmp", "cut.webp"):
        data = saved(folder, noise, name).read_bytes()
        (folder / name).write_bytes(data[: len(data) // 2])
        yield name
    for name, data in {
        "empty.png": b"",
        "text.png": b"no image",
        "page.png": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",  # Pillow would run Ghostscript
        "bomb.png": png([(b"IDAT", zlib.compress(b"\0" * 999))], size=(60000, 60000)),
        "text-bomb.png": png(
            [(b"zTXt", b"k\0\0" + zlib.compress(b"a" * 10**8)), (b"IDAT", zlib.compress(b"\0" * 620))]
        ),
        "flat.png": png([(b"IDAT", zlib.compress(b""))], size=(0, 20)),
    }.items():
        (folder / name).write_bytes(data)
        yield name
    (folder / "folder.png").mkdir()
    yield from ("folder.png", "no such file.png", "zero\0byte.png")


def test_broken_and_hostile_files_are_named(tmp_path):
    for name in broken_files(tmp_path):
        with pytest.raises(ValueError, match="Expected an image in") as error:
            decoding.open_image(tmp_path / name)
        assert repr(str(tmp_path / name)) in str(error.value), name


# How a table may name the image of somebody else; `link.png` and `linked/` are links that lead out.
WAYS = ["../others/image.png", "{others}/image.png", "link.png", "linked/image.png", "images/../../others/image.png"]


@pytest.fixture
def folder(tmp_path):
    """A folder of images beside another one, with links from the one to the other."""
    for name in ("images", "others"):
        (tmp_path / name).mkdir()
    (tmp_path / "images" / "images").mkdir()
    Image.new("L", (40, 30), 7).save(tmp_path / "others" / "image.png")
    Image.new("L", (40, 30), 9).save(tmp_path / "images" / "images" / "own.png")
    (tmp_path / "images" / "link.png").symlink_to(tmp_path / "others" / "image.png")
    (tmp_path / "images" / "linked").symlink_to(tmp_path / "others")
    return tmp_path / "images"


def write_rows(folder, way):
    way = way.format(others=folder.parent / "others")
    row = {"width": 40, "height": 30, "boxes": [[1, 2, 11, 22]], "labels": ["mass"], "split": "train"}
    rows = [{**row, "id": "own", "file": "images/own.png"}, {**row, "id": "other", "file": way}]
    write_lines(folder / "annotations.jsonl", rows)
    return way


@pytest.mark.parametrize("way", WAYS)
def test_prepare_loader_and_doctor_refuse_an_image_of_somebody_else(folder, way):
    way = write_rows(folder, way)
    with pytest.raises(ValueError, match="leads out of it") as error:
        load_split(str(folder), "train")
    assert "line 2" in str(error.value)
    assert repr(way) in str(error.value)
    assert load_split(str(folder), "train", allow_outside=True).num_rows == 2

    taken, settings = list(read_jsonl(folder)), PrepareSettings("jsonl", "qwen3-vl", bad_rows="drop")
    ((_, name, why),) = prepare_images(taken, folder, folder.parent / "out", settings)["skipped"]
    assert name == "other"
    assert "--allow-outside" in why
    assert not prepare_images(taken, folder, folder.parent / "all", settings, allow_outside=True)["skipped"]

    found = {one.name: one for one in examine(open_rows(str(folder))).defects}
    assert found["outside-image"].count == 1
    assert "missing-image" not in found
    allowed = examine(open_rows(str(folder), allow_outside=True)).defects
    assert "outside-image" not in {one.name for one in allowed}


def test_the_root_itself_may_be_a_link(folder):
    (folder.parent / "alias").symlink_to(folder)
    assert decoding.image_path(folder.parent / "alias", "images/own.png").is_file()
    assert decoding.is_below(folder.parent / "alias", folder / "images" / "own.png")
    assert not decoding.is_below(folder, str(folder) + "-too/image.png")
    assert not decoding.is_below(folder, "zero\0byte.png")
