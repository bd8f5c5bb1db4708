"""A preparation in shares: what is joined is, byte for byte, what one machine writes."""

from __future__ import annotations

import pytest
from PIL import Image

from grounding_rewards.common.job_shares import Share
from grounding_rewards.prepare import PrepareSettings, prepare_images, prepare_share, verify_images
from grounding_rewards.prepare.image_parts import MadeImage, read_images, read_signatures, write_part
from grounding_rewards.prepare.shards import read_footer
from grounding_rewards.prepare.stored_images import StoredImage

SHARES = (("train", 0.5), ("test", 0.5))


def options(**values):
    given = {"shard_megabytes": 0.003, "side": 48, "shares": SHARES, "splits_from": "hash"}
    return PrepareSettings("jsonl", "qwen3-vl", **{**given, **values})


def files_of(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def images(make_images):
    """Twelve images; the images of 3 and 8 are copies, whose patients then share a split."""
    root, records = make_images(12)
    Image.open(root / "3.png").save(root / "8.png", optimize=True)
    return root, [record if k != 8 else record._replace(boxes=[], labels=[]) for k, record in enumerate(records)]


@pytest.mark.parametrize("total", [1, 3, 14])
@pytest.mark.parametrize(
    "values",
    [
        {},
        # which images without findings stay depends on all images, and on the copies
        {"negatives": (("train", 0.2), ("test", 0.4))},
        {"task": "finding", "negatives": 0.5},
        # nothing is compared
        {"splits_from": "dataset", "shares": (("train", 1.0),)},
    ],
    ids=["all", "few negatives", "finding", "one split"],
)
def test_joined_shares_are_the_bytes_of_one_machine(images, tmp_path, values, total):
    root, records = images
    settings = options(**values)
    manifest = prepare_images(lambda: records, root, tmp_path / "whole", settings)
    out = tmp_path / "shared" / "out"
    for number in range(total, 0, -1):
        prepare_share(lambda: records, root, out, settings, Share(number, total))
    assert len(list(out.parent.iterdir())) == total
    assert prepare_images(lambda: records, root, out, settings, join=True) == manifest
    assert files_of(out) == files_of(tmp_path / "whole")
    assert verify_images(out) == []
    # The parts are gone.
    assert list(out.parent.iterdir()) == [out]
    # A finished folder needs no parts.
    assert prepare_images(lambda: records, root, out, settings, join=True) == manifest


def test_parts_alone_are_read_where_they_have_the_image(images, tmp_path, monkeypatch):
    """The images may be gone by then."""
    root, records = images
    for number in (1, 2):
        prepare_share(lambda: records, root, tmp_path / "out", options(), Share(number, 2))
    for path in root.iterdir():
        path.unlink()
    assert prepare_images(lambda: records, root, tmp_path / "out", options(), join=True)["complete"]


def test_a_missing_or_foreign_part_is_named(images, tmp_path):
    root, records = images
    out = tmp_path / "shared" / "out"
    with pytest.raises(ValueError, match=r"Expected the parts of shards of '.*out', got none"):
        prepare_images(lambda: records, root, out, options(), join=True)
    prepare_share(lambda: records, root, out, options(), Share(1, 2))
    with pytest.raises(ValueError, match=r"all 2 shards of .* got none of 2"):
        prepare_images(lambda: records, root, out, options(), join=True)
    prepare_share(lambda: records, root, out, options(side=31), Share(2, 2))
    with pytest.raises(ValueError, match=r"settings that '.*out-00002-of-00002.images.parquet' was begun with.*side"):
        prepare_images(lambda: records, root, out, options(), join=True)
    assert not out.exists()


def test_an_image_that_cannot_be_read_ends_its_share_or_is_left_out(images, tmp_path):
    root, records = images
    (root / "7.png").write_bytes(b"no image")
    assert prepare_share(lambda: records, root, tmp_path / "out", options(), Share(1, 2))[1] == 6
    with pytest.raises(ValueError, match=r"Expected an image that can be used, got image-7 \(7.png\)"):
        prepare_share(lambda: records, root, tmp_path / "out", options(), Share(2, 2))
    skipping = options(bad_rows="drop")
    whole = prepare_images(lambda: records, root, tmp_path / "whole", skipping)
    # A share that ended before stays good.
    prepare_share(lambda: records, root, tmp_path / "out", skipping, Share(2, 2))
    assert prepare_images(lambda: records, root, tmp_path / "out", skipping, join=True) == whole
    assert [image for _, image, _ in whole["skipped"]] == ["image-7"]


def test_a_part_gives_back_what_was_written(tmp_path):
    stored = StoredImage(b"png", 4, 3, 8, 6, (0.1, 0.2))
    made = [
        MadeImage("a", b"\0" * 4, stored),
        MadeImage("b", None, "truncated"),
        MadeImage("c", b"", None),
        MadeImage("d", b"x", stored._replace(original_spacing=None)),
    ]
    write_part(tmp_path / "part", made, {"settings": {"side": None}})
    assert read_footer(tmp_path / "part") == {"settings": {"side": None}}
    assert list(read_signatures([tmp_path / "part"] * 2)) == [image.signature for image in made] * 2
    assert list(read_images([tmp_path / "part"])) == [(image.id, image.image) for image in made]
