"""Refuse a dataset that cannot be learned from: before the first step, naming every problem at once.

Two kinds of mistake cost days: boxes that do not fit the image, and boxes that the model's box format cannot express.
The first is geometry. For the second, every row's ground truth is written in the box format and scored: it has to earn
the full reward from the very reward that will train the model.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from grounding_rewards.boxes import as_box_array, is_number, reference_defect
from grounding_rewards.columns import SIZE_COLUMNS
from grounding_rewards.common.formatting import first_of
from grounding_rewards.common.validation import check_word
from grounding_rewards.data.prompts import gold_answer, prompt_problem
from grounding_rewards.images.decoding import has_shape, image_size, rows_without_images, stored_images
from grounding_rewards.overlap import pairwise_iou
from grounding_rewards.parsing import BoxFormat, get_box_format
from grounding_rewards.rewards.scoring import has_labels

if TYPE_CHECKING:
    from datasets import Dataset

    from grounding_rewards.boxes import Boxes
    from grounding_rewards.rewards.box_reward import Explanation
    from grounding_rewards.rewards.grounding import GroundingReward

BAD_ROWS = ("refuse", "drop")
"""What is done with rows that cannot be learned from."""

# Facts about the image that `rows_with_sizes` adds to a row; no reward takes them.
_IMAGE_FACTS = ("image_size", "image_error")
# Names that a column of labels may have by mistake.
_LIKE_LABELS = ("label", "class", "classes", "class_names", "category", "categories", "names")
_TOLERANCE = 1e-6

_Made = TypeVar("_Made")


def check_dataset(
    dataset: Dataset, reward: GroundingReward | None = None, *, name: str = "train_dataset", bad_rows: str = "refuse"
) -> Dataset:
    """Raise one error that names all problems of rows on which `reward` could not be trained, or leave these rows out.

    A row is bad if its boxes are not four finite numbers each with `x1 < x2` and `y1 < y2` inside the image,
    its labels are not as many as its boxes, its sizes are missing or contradict the image, or its box format is
    unknown. Without a reward, which needs no box format, it is also bad if its prompt asks nothing. With a reward it is
    bad if its ground truth, written in its box format and scored, does not earn the full reward: `no_box_bonus` on an
    image without boxes; on others every box is found again and the reward is what the rounding of the format leaves of
    1. Where a row has `reader_boxes`, this holds for the boxes of every reader. For a reward that compares labels every
    box needs one, and it has to be read again too.

    Args:
        dataset: rows with the columns `prompt`, `boxes`, `width` and `height` (or `image`), and optionally
            `labels`, `ignore_boxes`, `reader_boxes`, `reader_labels`, `resized_width`, `resized_height`,
            `box_format` and `id`.
        reward: the reward to train with; its own box format goes before the rows'. None looks at what has to be right
            whatever the reward.
        name: what to call the dataset in the error.
        bad_rows: `refuse`, or `drop` to go on without them, which a warning says, with each reason and the first
            rows that have it, by number and `id`.

    Returns:
        The dataset, without the rows that were dropped.

    Raises:
        ValueError: a column is missing, there are no rows, or rows are bad (each reason, with number and `id` of the
            first rows that have it), or all of them are.

    Example:
        >>> from datasets import Dataset
        >>> import grounding_rewards as gr
        >>> image = {"prompt": "?", "boxes": [[10.1, 10, 10.2, 50]], "labels": ["tube"], "width": 400, "height": 600}
        >>> try:
        ...     check_dataset(Dataset.from_list([image]), gr.get_reward("R4", box_format="qwen3-vl"))
        ... except ValueError as error:
        ...     print(str(error).splitlines()[-1].partition(";")[0])
        row 0 (id -): box 0 (0.1 x 40 pixels) does not survive the rounding of qwen3-vl, IoU 0.25 with itself
        >>> image |= {"boxes": [[10, 10, 500, 50]]}
        >>> try:
        ...     check_dataset(Dataset.from_list([image]))
        ... except ValueError as error:
        ...     print(str(error).splitlines()[-1])
        row 0 (id -): box 0 is [10, 10, 500, 50], outside the image of 400 x 600
    """
    rows = _all_rows(dataset, name, needs_format=reward is not None and reward.box_format is None)
    problems: dict[int, list[str]] = defaultdict(list)
    for number, row in enumerate(rows):
        for problem in row_problems(row, reward):
            problems[number].append(problem)
    if reward is None:
        _add_prompt_problems(problems, dataset)
        expected = "a prompt, sizes, boxes and labels that fit the image"
        return without_bad_rows(dataset, problems, expected, name, bad_rows)
    references: list[_Reference] = []
    for number, row in enumerate(rows):
        if number not in problems:
            references += _references(number, row)
    # Only rows that are right so far can be written as answers and scored.
    losses = gold_problems([row for _, _, row in references], reward)
    for (number, prefix, _), sentences in zip(references, losses, strict=True):
        for sentence in sentences:
            problems[number].append(prefix + sentence)
    expected = f"ground truth that earns the full reward {reward.__name__}"
    return without_bad_rows(dataset, problems, expected, name, bad_rows)


def _add_prompt_problems(problems: dict[int, list[str]], dataset: Dataset) -> None:
    """Add what is wrong with the prompts of a dataset to the problems of its rows, by number."""
    several_images = "images" in dataset.column_names
    for number, row in enumerate(dataset.with_format(None).select_columns("prompt")):
        problem = prompt_problem(row["prompt"], several_images=several_images)
        # A row may lack a prompt because none could be written, as for an unknown box format: then that is its problem.
        if row["prompt"] is None and number not in problems:
            problem = "prompt is missing or has no words"
        if problem is not None:
            problems[number].append(problem)


def without_bad_rows(
    dataset: Dataset, problems: Mapping[int, Sequence[str]], expected: str, name: str, bad_rows: str
) -> Dataset:
    """The dataset without its bad rows: a warning names their problems if they are dropped, an error if refused.

    Args:
        dataset: all rows.
        problems: by number of the row, one sentence each.
        expected: what a good row has.
        name: what to call the dataset.
        bad_rows: of :data:`BAD_ROWS`.

    Raises:
        ValueError: there are bad rows and they are refused, no row is good, or another word for `bad_rows`.

    Example:
        >>> import warnings
        >>> from datasets import Dataset
        >>> images = Dataset.from_dict({"id": ["a", "b"]})
        >>> with warnings.catch_warnings(record=True) as said:
        ...     without_bad_rows(images, {1: ["width is missing"]}, "sizes", "train_dataset", "drop")["id"][:]
        ['a']
        >>> print(said[0].message)
        1 of 2 rows of train_dataset is dropped (bad_rows: drop):
        row 1 (id b): width is missing
    """
    check_word("bad_rows", bad_rows, BAD_ROWS)
    if not problems:
        return dataset
    ids = dataset["id"][:] if "id" in dataset.column_names else ["-"] * dataset.num_rows
    if bad_rows == "refuse" or len(problems) == len(ids):
        raise ValueError(
            f"Expected {expected} in every row for {name}, got {len(problems)} bad "
            f"{'row' if len(problems) == 1 else 'rows'} of {len(ids)}. Correct them, or go on without them by "
            "bad_rows: drop:\n" + "\n".join(_problem_lines(problems, ids))
        )
    warn_of_dropped(len(problems), f"{len(ids)} rows of {name}", _problem_lines(problems, ids))
    return dataset.select([number for number in range(len(ids)) if number not in problems])


def apply_to_rows(
    dataset: Dataset, values: Iterable[Any], make: Callable[[Any], _Made], expected: str, name: str, bad_rows: str
) -> tuple[Dataset, list[_Made]]:
    """Call a function with a value of each row; rows for which it raises ``ValueError`` are bad.

    Args:
        dataset: all rows.
        values: one for each row.
        make: called with each value.
        expected: what a good row has, for the error.
        name: what to call the dataset in the error.
        bad_rows: `refuse` them with an error, or `drop` them with a warning.

    Returns:
        The good rows, and what the function returned for them.

    Raises:
        ValueError: as :func:`without_bad_rows`.

    Example:
        >>> from datasets import Dataset
        >>> images = Dataset.from_dict({"id": ["a", "b"]})
        >>> apply_to_rows(images, ["1", "2"], int, "numbers", "train_dataset", "refuse")[1]
        [1, 2]
    """
    results: list[_Made] = []
    problems: dict[int, list[str]] = {}
    for number, value in enumerate(values):
        try:
            results.append(make(value))
        except ValueError as error:
            problems[number] = [str(error)]
    return without_bad_rows(dataset, problems, expected, name, bad_rows), results


def warn_of_dropped(count: int, total: str, lines: Iterable[str]) -> None:
    """Warn of bad rows that are left out.

    Args:
        count: how many there are.
        total: of how many of which dataset, in words.
        lines: which they are, and why.
    """
    verb = "is" if count == 1 else "are"
    warnings.warn(f"{count} of {total} {verb} dropped (bad_rows: drop):\n" + "\n".join(lines), stacklevel=4)


def _problem_lines(problems: Mapping[int, Sequence[str]], ids: Sequence[Any]) -> list[str]:
    """A line for each problem, that of the first row first, with the first few rows that share it.

    >>> _problem_lines({0: ["width is missing"], 3: ["width is missing"]}, "abcd")
    ['rows 0, 3 (ids a, d): width is missing']
    """
    numbers_by_sentence: dict[str, list[int]] = {}
    for number, sentences in sorted(problems.items()):
        numbers_by_sentence.setdefault("; ".join(sentences), []).append(number)
    lines = []
    for sentence, numbers in numbers_by_sentence.items():
        ending = "" if len(numbers) == 1 else "s"
        row_names = first_of([str(number) for number in numbers])
        id_names = first_of([str(ids[number]) for number in numbers])
        lines.append(f"row{ending} {row_names} (id{ending} {id_names}): {sentence}")
    return lines


ROW_PARTS = ("sizes", "lists", "labels", "boxes", "format")
"""What `row_problems` looks at; all but lists only where the columns of boxes are lists."""


def row_problems(
    row: Mapping[str, Any], reward: GroundingReward | None = None, parts: Collection[str] = ROW_PARTS
) -> Iterator[str]:
    """Why a row cannot be right, one sentence each; nothing for a sound row.

    Training, evaluation, `prepare`, the doctor and logs ask this function, so that none takes what another refuses.

    Args:
        row: one row; `image_size` holds the size of its image where the dataset has images.
        reward: decides the box format where the row does not; None looks at the name alone, where the row has one.
        parts: of :data:`ROW_PARTS`: `sizes`, those of the image; `lists`, columns of boxes that are no lists;
            `labels`, not one for each box; `boxes`, those that cannot be reference boxes, of any
            image if the size is unknown; `format`, the box format, and labels that the reward compares.

    Example:
        >>> list(row_problems({"boxes": [[5, 5, 2, 9]], "labels": [], "width": 40, "height": 60}))
        ['0 labels for 1 boxes', 'box 0 is [5, 5, 2, 9], which has no area as x1, y1, x2, y2']
        >>> list(row_problems({"boxes": "none", "reader_boxes": [[], None]}, parts=["lists"]))
        ["boxes is 'none', not a list", 'reader 1: boxes is None, not a list']
        >>> list(row_problems({"boxes": [], "reader_labels": [["mass"]]}, parts=["labels"]))
        ['reader_labels without reader_boxes']
    """
    if "sizes" in parts:
        yield from _size_problems(row)
    readers, drawings = row.get("reader_boxes"), _drawings(row)
    broken = [f"{prefix}boxes is {boxes!r:.200}, not a list" for prefix, boxes, _ in drawings if not is_list(boxes)]
    if readers is not None and not (is_list(readers) and readers):
        broken.append(f"reader_boxes is {readers!r:.200}, not a list with the boxes of each reader, or None")
    if broken:
        # Whether or not these are asked for, nothing else can be read from such a row.
        if "lists" in parts:
            yield from broken
        return
    if "labels" in parts:
        yield from _label_problems(row, drawings)
    if "boxes" in parts:
        for prefix, boxes, _ in drawings:
            for index, box in enumerate(boxes):
                problem = _box_problem(box, row.get("width"), row.get("height"))
                if problem is not None:
                    yield f"{prefix}box {index} {problem}"
    if "format" in parts:
        yield from _format_problems(row, reward)
        if reward is not None and reward.compares_labels:
            yield from _missing_label_problems(row)


def _missing_label_problems(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence if labels are missing or blank: those of the row, or of its readers if they drew its boxes."""
    column = "labels" if row.get("reader_boxes") is None else "reader_labels"
    value = row.get(column)
    if value is None:
        yield f"{column} is missing, which the reward compares"
        return
    label_lists = [value] if column == "labels" else value
    # A value that is no list is passed over here: `_label_problems` names it.
    labels = list(chain.from_iterable(filter(is_list, label_lists if is_list(label_lists) else ())))
    blank_labels = list(filter(is_blank, labels))
    if blank_labels:
        yield f"{len(blank_labels)} of {len(labels)} in {column} without a word, which the reward compares"


_Drawing = tuple[str, Any, Any]
"""Words for messages, which say whose boxes they are; the boxes; and their labels, None where they are not stated."""


def _drawings(row: Mapping[str, Any]) -> list[_Drawing]:
    """What a row says was drawn on its image: its boxes, the regions that are ignored, and the boxes of each reader.

    Returns:
        For each of these the beginning of a message about it, the boxes, and the labels, None where none are stated.
    """
    boxes, reader_labels = row.get("boxes"), row.get("reader_labels")
    box_lists = row["reader_boxes"] if is_list(row.get("reader_boxes")) else ()
    if boxes is None and box_lists:
        # The reward does not need `boxes` where `reader_boxes` has those of each reader.
        boxes = ()
    drawings = [("", boxes, row.get("labels"))]
    if row.get("ignore_boxes") is not None:
        drawings.append(("ignore_boxes: ", row["ignore_boxes"], None))
    # Label lists that are not one for each reader cannot be assigned: then no reader has labels.
    label_lists: Sequence[Any] = [None] * len(box_lists)
    if is_list(reader_labels) and len(reader_labels) == len(box_lists):
        # Where readers have labels, None is an empty list, so that it is found to be too short.
        label_lists = [labels or () for labels in reader_labels]
    for index, (reader_boxes, labels) in enumerate(zip(box_lists, label_lists, strict=True)):
        drawings.append((f"reader {index}: ", reader_boxes, labels))
    return drawings


def _label_problems(row: Mapping[str, Any], drawings: Sequence[_Drawing]) -> Iterator[str]:
    """Yield a sentence wherever there is not one label for each box, of the row or of one of its readers."""
    boxes, reader_labels = row.get("boxes"), row.get("reader_labels")
    if reader_labels is not None and row.get("reader_boxes") is None:
        yield "reader_labels without reader_boxes"
    elif reader_labels is not None:
        labelling_readers = len(reader_labels) if is_list(reader_labels) else 0
        if labelling_readers != len(row["reader_boxes"]):
            yield f"reader_labels of {labelling_readers} readers for reader_boxes of {len(row['reader_boxes'])}"
    for prefix, drawn_boxes, labels in drawings:
        label_count = len(labels) if is_list(labels) else "no list of"
        if labels is not None and label_count != len(drawn_boxes):
            yield f"{prefix}{label_count} labels for {len(drawn_boxes)} boxes"
    if row.get("labels") is None and reader_labels is None and boxes:
        # The labels may stand under a wrong name. Only a list counts: a single word may name the whole image.
        names = [name for name in _LIKE_LABELS if is_list(row.get(name)) and len(row[name]) == len(boxes)]
        if names:
            yield f"labels is missing, and {names[0]} has one for each box: call it labels"


def is_blank(label: Any) -> bool:
    """Whether a label names nothing.

    >>> is_blank(" "), is_blank(None), is_blank("mass")
    (True, True, False)
    """
    return not isinstance(label, str) or not label.strip()


def is_list(value: Any) -> TypeGuard[Sequence[Any]]:
    """Whether this is a list or a tuple.

    >>> is_list([]), is_list("mass")
    (True, False)
    """
    return isinstance(value, list | tuple)


def is_size(value: Any) -> TypeGuard[float]:
    """Whether this is a side in pixels.

    >>> is_size(512), is_size(0), is_size("512")
    (True, False, False)
    """
    return is_number(value) and value > 0


_Reference = tuple[int, str, Mapping[str, Any]]
"""Number of a row; the beginning of a message, which says who drew it; and the row with that reader's boxes alone."""


def _references(number: int, row: Mapping[str, Any]) -> Iterator[_Reference]:
    """Yield the row as it is; or, where several readers drew boxes, a copy of it with the boxes of each.

    Each comes after the row's number and the beginning of a message, which says who drew the boxes.
    """
    if row.get("reader_boxes") is None:
        yield number, "", row
        return
    labels = row.get("reader_labels")
    for index, boxes in enumerate(row["reader_boxes"]):
        reader_labels = None if labels is None else labels[index]
        reader_columns = {"boxes": boxes, "labels": reader_labels, "reader_boxes": None, "reader_labels": None}
        yield number, f"reader {index}: ", {**row, **reader_columns}


def gold_problems(rows: Sequence[Mapping[str, Any]], reward: GroundingReward) -> list[list[str]]:
    """What each row's ground truth loses when it is written in the box format and scored, one sentence each.

    Args:
        rows: rows without any of the problems that :func:`row_problems` names.
        reward: as for :func:`check_dataset`.

    Returns:
        A list per row, empty where the row's own boxes earn the full reward up to the rounding of the format.

    Example:
        >>> import grounding_rewards as gr
        >>> image = {"boxes": [[10.1, 10, 10.2, 50]], "labels": ["tube"], "width": 400, "height": 600}
        >>> gold_problems([image], gr.get_reward("R4", box_format="qwen3-vl"))[0][0]
        'box 0 (0.1 x 40 pixels) does not survive the rounding of qwen3-vl, IoU 0.25 with itself'
    """
    if not rows:
        return []
    # Each row's answer is written and scored as in training; its boxes are also scored without being written, and as
    # they are read back. So a loss by rounding, which is no problem, is told from any other.
    columns = {}
    for name in dict.fromkeys(chain(*rows)):
        if name not in _IMAGE_FACTS:
            columns[name] = [row.get(name) for row in rows]
    # The written answer has no thinking before it, also where the chat template would open some.
    answer_reward = replace(reward, prompt_opens_thinking=False)
    answers = [gold_answer(row, _box_format(row, reward)) for row in rows]
    scored_answers = answer_reward.details(completions=answers, **columns)
    gt = [row["boxes"] for row in rows]

    def rewards_of(boxes: Sequence[Any], labels: Sequence[Any]) -> list[float]:
        """The reward of each row for these boxes and labels; 0 if the reward judges texts alone."""
        if not reward.judges_boxes:
            return [0.0] * len(gt)
        if not reward.compares_labels:
            return reward.score_many(boxes, gt)
        return reward.score_many(boxes, gt, pred_labels=labels, gt_labels=[row["labels"] for row in rows])

    full_rewards = rewards_of(gt, [row.get("labels") for row in rows])
    read_back = [answer.parsed for answer in scored_answers]
    rounded_rewards = rewards_of([parsed.boxes for parsed in read_back], [parsed.labels for parsed in read_back])
    rewards_by_row = zip(rows, scored_answers, full_rewards, rounded_rewards, strict=True)
    return [list(_losses(row, reward, scored, full, rounded)) for row, scored, full, rounded in rewards_by_row]


def rows_with_sizes(dataset: Dataset) -> Iterator[dict[str, Any]]:
    """The rows without prompts and images, but with the sizes of the images, read from the headers.

    If the dataset has images, every row gets `image_size`, None without a readable image, and `image_error` if its
    image cannot be read. A row with neither `width` nor `height` gets those of its image.

    Example:
        >>> from datasets import Dataset
        >>> list(rows_with_sizes(Dataset.from_list([{"prompt": "Where?", "width": 40}])))
        [{'width': 40}]
    """
    rows = rows_without_images(dataset, "prompt")
    if "image" not in dataset.column_names:
        yield from rows
        return
    for row, image in zip(rows, stored_images(dataset), strict=True):
        try:
            size = None if image is None else image_size(image)
        except ValueError as error:
            size, row["image_error"] = None, " ".join(str(error).split())
        row["image_size"] = size
        if row.get("width") is None and row.get("height") is None and size is not None:
            row["width"], row["height"] = size
        yield row


def _all_rows(dataset: Dataset, name: str, *, needs_format: bool) -> list[dict[str, Any]]:
    """The rows with their sizes; a dataset without rows, or without a needed column, is refused.

    Args:
        dataset: all rows.
        name: what to call the dataset in the error.
        needs_format: whether the rows have to say their box format.
    """
    needed = ["prompt", "boxes"]
    if "image" not in dataset.column_names:
        needed += ["width", "height"]
    if needs_format:
        needed.append("box_format")
    missing = [column for column in needed if column not in dataset.column_names]
    if missing:
        raise ValueError(
            f"Expected the columns prompt, boxes, width, height, box_format for {name}, got "
            f"{', '.join(sorted(dataset.column_names))}. Add {', '.join(missing)} (an image column may stand for width "
            "and height, the reward's own box_format for the last)."
        )
    rows = list(rows_with_sizes(dataset))
    if not rows:
        raise ValueError(f"Expected at least one row for {name}, got none. Check the split and the path.")
    return rows


def _size_problems(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield which sizes are missing, are no sizes in pixels, or have another shape than the image."""
    for column in SIZE_COLUMNS:
        value = row.get(column)
        if value is None:
            # The resized sizes are needed by some box formats only.
            if column in ("width", "height"):
                yield f"{column} is missing"
        elif not is_size(value):
            yield f"{column} is {value!r}, not a size in pixels"
    size, width, height = row.get("image_size"), row.get("width"), row.get("height")
    if "image_error" in row:
        yield f"image cannot be read ({row['image_error']})"
    elif "image_size" in row and size is None:
        yield "image is missing"
    if size is None or width is None or height is None or not (is_number(width) and is_number(height)):
        return
    if not has_shape(size, (width, height)):
        yield f"the image is {size[0]} x {size[1]}, which is not the shape of {width} x {height}"


def _box_problem(box: Any, width: Any, height: Any) -> str | None:
    """What is wrong with a reference box on an image of this size, as the end of a sentence; None if nothing is."""
    size = (width, height) if is_number(width) and is_number(height) else None
    defect = reference_defect(box, size)
    if defect is None:
        return None
    if not isinstance(box, Sequence) or len(box) != 4:
        return f"is {box!r}, not four numbers"
    if defect == "not-finite":
        return f"is {list(box)!r}, not four finite numbers"
    if defect in ("swapped-corners", "no-area"):
        return f"is {list(box)}, which has no area as x1, y1, x2, y2"
    return f"is {list(box)}, outside the image of {width} x {height}"


def _format_problems(row: Mapping[str, Any], reward: GroundingReward | None) -> Iterator[str]:
    """Yield why the box format, the reward's own or else the row's, cannot be used.

    Without a reward only an unknown name is wrong: a row may then have no box format.
    """
    if row.get("box_format") is None and (reward is None or reward.box_format is None):
        if reward is not None:
            yield "box_format is missing"
        return
    try:
        box_format = _box_format(row, reward)
    except ValueError as error:
        yield str(error)
        return
    if reward is None:
        return
    if reward.compares_labels and not has_labels(box_format):
        yield f"the box format {box_format.name} has no labels, which the reward compares"
    if box_format.space.frame == "resized" and None in (row.get("resized_width"), row.get("resized_height")):
        yield f"resized_width and resized_height are missing, which the box format {box_format.name} counts in"


def _box_format(row: Mapping[str, Any], reward: GroundingReward | None) -> BoxFormat:
    """The box format of the reward, else that of the row."""
    if reward is not None and reward.box_format is not None:
        return get_box_format(reward.box_format)
    if not isinstance(row["box_format"], str):
        raise ValueError(f"box_format is {row['box_format']!r:.200}, not a name")
    return get_box_format(row["box_format"])


def _losses(
    row: Mapping[str, Any], reward: GroundingReward, scored: Explanation, full: float, rounded: float
) -> Iterator[str]:
    """What a row's ground truth loses when it is written in the box format.

    Args:
        row: the row.
        reward: that scores it.
        scored: the reward of the written answer, with what was read from it.
        full: the reward of the boxes as they are, without being written.
        rounded: the reward of the boxes as they were read back, with rounded coordinates, without the rest of the text.
    """
    box_format = _box_format(row, reward)
    gt, read = as_box_array(row["boxes"]), as_box_array(scored.parsed.boxes)
    if len(read) != len(gt):
        # Which of them are lost cannot be told then.
        yield f"its {len(gt)} boxes written in {box_format.name} are read back as {len(read)} ({scored.parsed.status})"
        return
    # A reward of texts alone loses nothing; 1 is the most that a reward of the package gives on an image with boxes.
    if not reward.judges_boxes or (len(gt) and scored.reward >= 1.0 - _TOLERANCE):
        return
    earnings = f"its own boxes written in {box_format.name} earn {scored.reward:.2g} of {full:.2g}"
    # fn: the number of reference boxes that the answer did not hit.
    if scored.fn:
        matched = {gt_index for _, gt_index in scored.matches}
        for index in sorted(set(range(len(gt))) - matched):
            # Boxes are read in the order in which they were written.
            problem = f"box {index} {_why_lost(gt[[index]], read[[index]], box_format)}"
            if reward.compares_labels:
                problem += f", label {row['labels'][index]!r} read back as {scored.parsed.labels[index]!r}"
            yield problem
        yield earnings
    # The full reward is 1 for R1 to R5; a user's own reward may have another maximum, but not 0.
    elif len(gt) and full <= 0:
        yield f"its own boxes earn {full:.4g}, so that nothing could be learned from it"
    # More is lost than the rounding of the coordinates explains.
    elif scored.reward < rounded - _TOLERANCE:
        yield f"{earnings} ({scored.reason})"


def _why_lost(box: Boxes, read: Boxes, box_format: BoxFormat) -> str:
    """The end of a sentence that says how a box is lost by being written in a box format and read back.

    Args:
        box: (1, 4), as the row has it.
        read: (1, 4), as it was read back.
        box_format: in which it was written.
    """
    size = " x ".join(f"{side:.3g}" for side in box[0, 2:] - box[0, :2])
    step = "cropping" if box_format.space.frame == "cropped" else "rounding"
    iou = pairwise_iou(read, box)[0, 0]
    return f"({size} pixels) does not survive the {step} of {box_format.name}, IoU {iou:.2f} with itself"
