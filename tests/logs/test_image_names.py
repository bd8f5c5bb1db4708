"""Rows and images joined by whatever column names the images."""

from typing import Any

import pytest

from grounding_rewards.logs.image_names import with_image_ids
from grounding_rewards.logs.read import Log
from tests.tables import table

IMAGES = [{"id": "p1/a"}, {"id": "p1/b"}, {"id": "p2/c"}, {"id": "p2/d"}]
#: The rows of the log answer the images in this order.
ORDER = (2, 0, 3, 1)


def log_of(columns: dict[str, list[Any]]) -> Log:
    n = len(next(iter(columns.values())))
    rows = [{"completion": "[]", **{name: values[k] for name, values in columns.items()}} for k in range(n)]
    return Log(["[]"] * n, rows, [f"line {k + 1}" for k in range(n)])


@pytest.mark.parametrize(
    ("images", "column", "values"),
    [
        *((IMAGES, *row) for row in table("logs/rows", "columns_that_name_images")),
        *table("logs/rows", "the_column_that_names_images_is_found"),
    ],
)
def test_the_column_that_names_images_is_found(images, column, values) -> None:
    # Columns that name no image, or name few by chance.
    chance = {"step": [1, 1, 2, 2], "score": [0.5, 1.0, 0.0, 1.0], "boxes": [[]] * 4, "confidence": [3, 2, 1, 0]}
    named = with_image_ids(log_of({**chance, column: values}), images)
    assert [row["id"] for row in named.rows] == [str(images[k].get("id", k)) for k in ORDER]
    assert named.notes == (f"Rows belong to images by the column `{column}` of the log.",)


def test_an_id_that_is_no_image_gives_way() -> None:
    columns = {"id": [f"batch_{k}" for k in range(4)], "custom_id": ["p2/c", "p1/a", "p2/d", "p1/b"]}
    assert [row["id"] for row in with_image_ids(log_of(columns), IMAGES).rows] == columns["custom_id"]
    # An id that is one goes first, also by its file name.
    columns = {"id": ["a", "b", "c", "d"], "image_path": ["d", "c", "b", "a"]}
    named = with_image_ids(log_of(columns), IMAGES)
    assert ([row["id"] for row in named.rows], named.notes) == (["p1/a", "p1/b", "p2/c", "p2/d"], ())


def test_columns_that_name_different_images_are_refused() -> None:
    columns = {"image_a": ["a", "b", "c", "d"], "image_b": ["d", "c", "b", "a"]}
    with pytest.raises(ValueError, match=r"got image_a and image_b, which name different ones\. Rename the right one"):
        with_image_ids(log_of(columns), IMAGES)
    # The same image under two names is no contradiction.
    columns["image_b"] = [f"x/{name}.png" for name in columns["image_a"]]
    assert "column `image_a`" in with_image_ids(log_of(columns), IMAGES).notes[0]


@pytest.mark.parametrize(("images", "values"), table("logs/rows", "without_a_name_order_is_offered"))
def test_without_a_name_order_is_offered(images, values) -> None:
    log = log_of({"image_path": values})
    with pytest.raises(ValueError, match=r"got none among completion, image_path.* give --by-order"):
        with_image_ids(log, images)


@pytest.mark.parametrize("other", ["z.png", "p3/d.png"])  # the second one: of a patient who is not in the dataset
def test_rows_of_other_images_keep_their_name(other) -> None:
    named = with_image_ids(log_of({"file_name": ["a.png", "b.png", "p2/c.png", other]}), IMAGES)
    assert [row["id"] for row in named.rows] == ["p1/a", "p1/b", "p2/c", other]


def test_a_whole_name_goes_before_the_end_of_another() -> None:
    images = [{"id": name} for name in ("a.png", "b.png", "p1/a.png", "p1/b.png")]
    named = with_image_ids(log_of({"image_path": [image["id"] for image in images]}), images)
    assert [row["id"] for row in named.rows] == [image["id"] for image in images]
    assert named.notes
