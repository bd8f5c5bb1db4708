"""Which image of a dataset a row of a log is about: by the column that has the images' ids or file names."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from grounding_rewards.columns import BOX_COLUMNS, SIZE_COLUMNS, image_id, patient_key, stated_name
from grounding_rewards.common.formatting import first_of
from grounding_rewards.logs.read import Log

# Columns of a dataset, beside `id`, that name the image or its file.
_FILE_COLUMNS = ("image_path", "file_name", "filename", "file", "image_id")
# Names of columns of a log in which numbers may be names of images; those in `step` or `count` are none.
_NAMING = re.compile(
    r"(?i:(?:^|[\W_])(?:id|idx|index|key|uid|uuid|name)(?:$|[\W_])|image|img|file|path|study|scan|case)|[a-z](?:Id|ID)$"
)
_ENDINGS = re.compile(r"(?:\.(?:png|jpe?g|bmp|gif|webp|tiff?|dcm|dicom|npy|nii|mha|gz|txt|json|xml))+$", re.IGNORECASE)
# Longer texts are no names.
_LONGEST_NAME = 1000
# Rows of the log, as a fraction, that a column has to name: rows of another split are then named by the error.
_LEAST_SHARE = 0.5


def with_image_ids(
    log: Log, images: Sequence[Mapping[str, Any]], *, by_order: bool = False, in_groups: bool = False
) -> Log:
    """The log with the `id` of the dataset's image in every row.

    A row belongs to the image whose `id`, or whose file name with or without its folder and ending, stands in one of
    its columns; a column other than `id` is named in a note. Values that name no image stay in `id`.

    Args:
        log: its rows.
        images: the rows of the dataset; one without `id` is named by its number.
        by_order: take the rows in the order of the images, whatever their columns say.
        in_groups: with `by_order`, equally many rows one after another are answers to each image.

    Raises:
        ValueError: no column names images, two columns name different ones, or rows and images are not as many.

    Example:
        >>> log = Log(["[]", "None"], [{"image_path": "x/b.png"}, {"image_path": "x/a.png"}], ["line 1", "line 2"])
        >>> named = with_image_ids(log, [{"id": "a"}, {"id": "b"}])
        >>> [row["id"] for row in named.rows], named.notes
        (['b', 'a'], ('Rows belong to images by the column `image_path` of the log.',))
    """
    ids = [image_id(row, k) for k, row in enumerate(images)]
    if by_order:
        return _named_by_order(log, ids, in_groups)
    # Of each image its id and its file names.
    names_of_images = []
    for name, row in zip(ids, images, strict=True):
        file_names = [stated_name(row.get(column)) for column in _FILE_COLUMNS]
        names_of_images.append([name, *filter(None, file_names)])
    columns = [name for name in _columns(log) if name not in (*BOX_COLUMNS, *SIZE_COLUMNS)]
    if any(name.isdecimal() for name in ids):
        # Then a count or a step may equal an id by chance: only columns that are called like a name are looked at.
        columns = [name for name in columns if _NAMING.search(name)]
    matches = _numbers_by_column(log, columns, names_of_images)
    column = _naming_column(log, matches)
    if column is None:
        if any(row.get("id") not in (None, "") for row in log.rows):
            # Rows without an id, or with one that names no image, are refused where they are joined.
            return log
        raise ValueError(
            "Expected a column of the log with the ids or file names of the dataset's images, such as "
            f"{first_of([repr(name) for name in ids])}, got none among {', '.join(_columns(log))}. Add the image's "
            "`id` to every row, or give --by-order if the rows are in the order of the images."
        )
    # Each row with the number of its image, None where its value names no image and stays the `id`.
    numbered_rows = zip(log.rows, matches[column], strict=True)
    rows = [{**row, "id": row.get(column) if k is None else ids[k]} for row, k in numbered_rows]
    notes = log.notes
    if column != "id":
        notes = (*notes, f"Rows belong to images by the column `{column}` of the log.")
    return log._replace(rows=rows, notes=notes)


def _named_by_order(log: Log, ids: Sequence[str], in_groups: bool) -> Log:
    """The log with an `id` in each row: row k answers image k, or, in groups, equally many rows answer each image."""
    n = len(log.rows)
    group_size = n // max(len(ids), 1) if in_groups else 1
    if n != group_size * len(ids):
        raise ValueError(
            f"Expected as many completions as images for --by-order, got {n} completions for {len(ids)} images. Name "
            "the split that was answered with --split, or add the image's `id` to every row."
        )
    rows = [{**row, "id": ids[k // group_size]} for k, row in enumerate(log.rows)]
    note = "Rows are taken to be in the order of the images (--by-order): in another order all metrics are wrong."
    return log._replace(rows=rows, notes=(*log.notes, note))


def _numbers_by_column(log: Log, columns: Sequence[str], names: Sequence[Sequence[str]]) -> dict[str, list[int | None]]:
    """By column, for each row of the log, the number of the image that its value names; None if it names no image.

    Columns in which several values name one image are left out: these are files of one name in several folders. `names`
    has the names of each image.
    """
    find = image_number_finder(names)
    matches = {}
    for column in columns:
        numbers = [find(row.get(column)) for row in log.rows]
        # Each value once, with the number of its image: an image that comes twice has two names in this column.
        values_and_numbers = {(str(row.get(column)), k) for row, k in zip(log.rows, numbers, strict=True)}
        numbers_of_values = [k for _, k in values_and_numbers if k is not None]
        if len(numbers_of_values) == len(set(numbers_of_values)):
            matches[column] = numbers
    return matches


def _naming_column(log: Log, matches: Mapping[str, Sequence[int | None]]) -> str | None:
    """The column that names the image of most rows; None where none names that of half of them.

    Raises:
        ValueError: two columns name as many images, but not the same.
    """
    n = len(log.rows)
    # How many rows each column names an image for.
    row_counts = {name: sum(k is not None for k in numbers) for name, numbers in matches.items()}
    if row_counts.get("id") == n:
        return "id"
    highest_count = max(row_counts.values(), default=0)
    if highest_count < max(1, _LEAST_SHARE * n):
        return None
    columns = [name for name in matches if row_counts[name] == highest_count]
    # Where numbers are ids, a column with few different values may name images by chance.
    image_counts = {name: len(set(matches[name])) for name in columns}
    column, *other_columns = [name for name in columns if image_counts[name] == max(image_counts.values())]
    for name in other_columns:
        if matches[name] != matches[column]:
            raise ValueError(
                f"Expected one column of the log that names the images of the dataset, got {column} and {name}, "
                "which name different ones. Rename the right one to `id`."
            )
    return column


def _columns(log: Log) -> list[str]:
    """The names of all columns, in the order in which rows first have them."""
    return list(dict.fromkeys(name for row in log.rows for name in row))


def image_number_finder(names: Sequence[Sequence[str]]) -> Callable[[Any], int | None]:
    """A function that gives the number of the image that a value of a log names; None if it names none or several.

    A name may have more or fewer folders in front than that of the image, and no others.

    Args:
        names: of each image its id, and its file names.

    Example:
        >>> find = image_number_finder([["p1/a"], ["p2/a"], ["7", "scan_7.png"], ["p4/b"]])
        >>> find("data/p2/a.png"), find("a"), find("scan_7.jpg"), find(7.0), find("/p1/a")
        (1, None, 2, 2, 0)
        >>> find("p3/b") is None
        True
    """
    # The number of the image by its whole names, and by all ends of these; None where several images have one.
    whole_names: dict[Any, int | None] = {}
    ends: dict[Any, int | None] = {}
    for k, image_names in enumerate(names):
        for name in image_names:
            keys = _path_ends(name)
            # Each end has two keys, as it is and normalised: the first two are of the whole name.
            for numbers, name_keys in ((whole_names, keys[:2]), (ends, keys)):
                for key in name_keys:
                    numbers[key] = k if numbers.get(key, k) == k else None

    def find(value: Any) -> int | None:
        """The number of the one image that the value names, else None."""
        if isinstance(value, list | tuple) and len(value) == 1:
            # Trainers take a list of images.
            value = value[0]
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            return None
        text = stated_name(value)
        if text is None or len(text) > _LONGEST_NAME:
            return None
        keys = _path_ends(text)
        for key in keys:
            if key in whole_names:
                # The whole name of an image, perhaps with more folders in front.
                return whole_names[key]
            if key in ends:
                # Only an end of the image's name agrees. The value may lack the folders before it, and is then that end
                # as a whole, but may not have other folders there: "p3/b" does not name "p4/b".
                has_other_folders = key not in keys[:2]
                return None if has_other_folders else ends[key]
        return None

    return find


def _path_ends(name: str) -> list[Any]:
    """What a name is looked up by: the ends of its path from the longest, as dataset and log have folders of their own.

    Each end as it is, then without the file's ending, in small letters and without zeros before a number.

    >>> _path_ends("Data\\\\0012.PNG"), _path_ends("1.2.840.7")
    (['Data/0012.PNG', ('data', '12'), '0012.PNG', ('12',)], ['1.2.840.7', ('1.2.840.7',)])
    """
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
    if not parts:
        return []
    stem = _ENDINGS.sub("", parts[-1]) or parts[-1]
    words = tuple(map(patient_key, (*parts[:-1], stem)))
    keys: list[Any] = []
    for start in range(len(parts)):
        keys += ["/".join(parts[start:]), words[start:]]
    return keys
