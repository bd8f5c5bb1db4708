"""Write the tables that other trainers read: images, prompts, and the reference of each row as one JSON text.

Layouts of verl 0.9.1 (`utils/dataset/rl_dataset.py`), EasyR1 at 46c6c21 (`verl/utils/dataset.py`), ms-swift 4.6.0
(`dataset/preprocessor/core.py`, `rl_core/data.py`) and OpenRLHF 0.11.2 (`datasets/prompts_dataset.py`), read in
November 2026. All of them mark the place of the image in a prompt by `<image>`.

Sizes follow each trainer's resizing before the processor of the model, and the processor's own: verl 0.9.1 and
ms-swift 4.6.0 with qwen-vl-utils 0.0.14, EasyR1 and OpenRLHF as above. They hold for processors of the Qwen2-VL kind,
the only ones after which a model may count in resized pixels.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import operator
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from grounding_rewards.columns import SCORED_COLUMNS
from grounding_rewards.common.atomic_files import check_new, whole_folder
from grounding_rewards.data.checks import apply_to_rows, check_dataset, rows_with_sizes
from grounding_rewards.data.dataset_columns import add_prompts, with_column
from grounding_rewards.data.prompts import conversation, prompt_words
from grounding_rewards.images.decoding import load_image, open_image, shown_image, stored_images
from grounding_rewards.images.dicom import is_dicom
from grounding_rewards.images.resize import image_processor_of, limits_area, resized_size, size_within
from grounding_rewards.parsing import box_formats_of, get_box_format
from grounding_rewards.rewards.grounding import get_reward

if TYPE_CHECKING:
    from datasets import Dataset

Progress = Callable[[str, int, int | None], None]

IMAGES = "images"
"""The folder next to a table with images that are not files, or whose files trainers would decode in another way."""

_MARK = "<image>"
# Tokens of an image, as qwen-vl-utils bounds them by default.
_MIN_TOKENS = 4
_MAX_TOKENS = 16384
# Pixels of an image in EasyR1's examples/config.yaml.
_EASYR1_LIMITS = (262_144, 4_194_304)


@dataclass(frozen=True)
class PixelLimits:
    """The smallest and the largest area of an image in pixels, as options of a trainer; None keeps the trainer's."""

    least: int | None = None
    most: int | None = None


DEFAULT_LIMITS = PixelLimits()
"""The defaults of a trainer."""


def trainer_limits(trainer: str, limits: PixelLimits) -> PixelLimits:
    """The limits of the areas of images under a trainer: the user's; in EasyR1 its own defaults where these are None.

    Args:
        trainer: a name in :data:`TABLES`.
        limits: of the user.

    Raises:
        ValueError: limits for OpenRLHF, which passes images unchanged to the processor.

    Example:
        >>> trainer_limits("easyr1", PixelLimits(most=1_003_520))
        PixelLimits(least=262144, most=1003520)
    """
    if trainer == "openrlhf" and limits != DEFAULT_LIMITS:
        raise ValueError(
            "Expected neither --min-pixels nor --max-pixels for openrlhf, got one. It hands images to the processor as "
            "they are: set the limits in the model's preprocessor_config.json, or shrink images with prepare --side."
        )
    if trainer != "easyr1":
        return limits
    min_area, max_area = _EASYR1_LIMITS
    if limits.most is not None:
        max_area = limits.most
    # EasyR1's smallest area gives way to a smaller largest area of the user.
    min_area = min(min_area, max_area) if limits.least is None else limits.least
    return PixelLimits(min_area, max_area)


def trainer_size(
    trainer: str, processor: Any, width: int, height: int, limits: PixelLimits = DEFAULT_LIMITS
) -> tuple[int, int]:
    """Width and height in pixels of an image as the model sees it under a trainer.

    Args:
        trainer: a name in :data:`TABLES`.
        processor: of the Qwen2-VL kind, see :func:`grounding_rewards.images.resize.limits_area`.
        width: width of the image in pixels, as its file has it.
        height: height of the image in pixels.
        limits: passed to the trainer.

    Raises:
        ValueError: the image is so narrow that the trainer or the processor refuses it, or the limits do not fit.

    Example:
        >>> class Qwen2VLImageProcessor:
        ...     size = {"shortest_edge": 56 * 56, "longest_edge": 1280 * 28 * 28}
        ...     patch_size, merge_size, do_resize = 14, 2, True
        >>> [trainer_size(trainer, Qwen2VLImageProcessor(), 2544, 3056) for trainer in TABLES]
        [(896, 1092), (896, 1092), (2548, 3052), (896, 1092)]
    """
    limits = trainer_limits(trainer, limits)
    # The merge size of qwen_vl_utils is 2, whatever the processor has.
    token_side = image_processor_of(processor).patch_size * 2
    if trainer == "ms-swift":
        # The processor does not resize here. MIN_PIXELS and MAX_PIXELS are rounded down to whole tokens.
        token_area = token_side**2
        least_pixels = None if limits.least is None else limits.least // token_area * token_area
        most_pixels = None if limits.most is None else limits.most // token_area * token_area
        return qwen_vl_utils_size(width, height, token_side, PixelLimits(least_pixels, most_pixels))
    if trainer == "verl":
        width, height = qwen_vl_utils_size(width, height, token_side, limits)
    elif trainer == "easyr1":
        width, height = easyr1_size(width, height, limits)
    return resized_size(processor, width, height)


def easyr1_size(width: int, height: int, limits: PixelLimits) -> tuple[int, int]:
    """Width and height to which EasyR1 resizes an image before the processor: its area is brought within the limits.

    Source: `process_image` in `verl/utils/dataset.py`.

    Example:
        >>> easyr1_size(3000, 2000, PixelLimits(least=4, most=1_000_000))
        (1224, 816)
    """
    # An image above the largest area is shrunk to it, one below the smallest enlarged; sides are cut to whole pixels.
    for limit, breaks_limit in ((limits.most, operator.gt), (limits.least, operator.lt)):
        if limit is not None and breaks_limit(width * height, limit):
            scale = math.sqrt(limit / (width * height))
            width, height = int(width * scale), int(height * scale)
            if not (width and height):
                raise ValueError("Expected an image that EasyR1 can resize, got one so narrow that no pixel is left.")
    return width, height


def qwen_vl_utils_size(width: int, height: int, factor: int, limits: PixelLimits) -> tuple[int, int]:
    """Width and height to which `qwen_vl_utils.fetch_image` resizes an image: whole tokens, and an area within limits.

    Source: `smart_resize` in `qwen_vl_utils/vision_process.py`. Where a side rounds to nothing it differs from the
    function of this name in transformers, see :func:`grounding_rewards.images.resize.resized_size`.

    Args:
        width: width of the image in pixels.
        height: height of the image in pixels.
        factor: side of a token in pixels.
        limits: areas; None is 4 and 16384 tokens.

    Example:
        >>> qwen_vl_utils_size(2544, 3056, 28, PixelLimits(most=1280 * 28 * 28))
        (896, 1092)
    """
    min_area = _MIN_TOKENS * factor**2 if limits.least is None else limits.least
    max_area = _MAX_TOKENS * factor**2 if limits.most is None else limits.most
    if min_area > max_area:
        raise ValueError(
            f"Expected at least {min_area} for --max-pixels, the smallest area of an image, got {max_area}. "
            "Raise it, or lower --min-pixels."
        )
    if max(width, height) > 200 * min(width, height):
        raise ValueError(
            f"Expected sides within a ratio of 200, got {width} x {height}. qwen_vl_utils refuses such images; crop or "
            "drop this one."
        )
    # Both sides to the nearest number of whole tokens, at least one.
    rounded = max(factor, round(width / factor) * factor), max(factor, round(height / factor) * factor)
    new_width, new_height = size_within((width, height), rounded, factor, min_area, max_area)
    if not (new_width and new_height):
        raise ValueError(
            f"Expected an image that qwen_vl_utils can resize, got one of {width} x {height}, which is too narrow for "
            f"{max_area} pixels. Raise --max-pixels, or drop this one."
        )
    return new_width, new_height


class TableRow(NamedTuple):
    """One image as a trainer gets it.

    Attributes:
        messages: role and text of each turn, with `<image>` at the place of the image.
        image: absolute path of the image's file.
        truth: the reference, JSON with the columns that rewards read.
        source: name of the dataset.
        split: name of the split.
        number: of the row in its split, from 0.
        id: of the image.
        limits: `min_pixels` and `max_pixels` as qwen_vl_utils takes them with an image; without unset ones.
    """

    messages: list[dict[str, str]]
    image: str
    truth: str
    source: str
    split: str
    number: int
    id: str | None
    limits: dict[str, int]


def write_trainer_table(
    dataset: Dataset,
    trainer: str,
    out: Path,
    *,
    split: str,
    source: str,
    box_format: str | None = None,
    processor: Any = None,
    limits: PixelLimits = DEFAULT_LIMITS,
    bad_rows: str = "refuse",
    on_progress: Progress = lambda stage, done, total: None,
) -> dict[str, Any]:
    """Write the table of one split for a trainer, `out/<split>.parquet` or `.jsonl`, and images that need a file.

    The table names the file of an image if every program decodes it in the same way; other images are written to
    `out/images`, under names made from their bytes. Sizes after the trainer's own resizing are in the ground truth if
    the processor is of the Qwen2-VL kind.

    Args:
        dataset: rows with the package's columns.
        trainer: a name in :data:`TABLES`.
        out: a folder; a table of the same split in it is refused.
        split: name of the split.
        source: name of the dataset, for rows without a column `source`.
        box_format: a name, or a mapping in JSON; None takes the column.
        processor: the model's; needed for box formats in resized pixels.
        limits: areas in pixels that are passed to the trainer.
        bad_rows: `refuse` rows that a reward could not use, or `drop` them, which a warning says.
        on_progress: called after every image.

    Returns:
        A mapping with `path`, the numbers of `rows`, `negatives` and written `images`, and `lines` for the trainer's
        configuration.

    Raises:
        ValueError: an argument does not fit the trainer, or rows are bad (each reason and its first rows).
    """
    layout = TABLES[trainer]
    path = out / f"{split}.{layout.ending}"
    check_new(path, "--out", "Name another folder.")
    limits = trainer_limits(trainer, limits)
    dataset = _checked_rows(dataset, trainer, box_format, processor, limits, bad_rows)
    pixel_limits = {"min_pixels": limits.least, "max_pixels": limits.most}
    set_limits = {name: value for name, value in pixel_limits.items() if value is not None}
    rows: list[TableRow] = []
    negatives = 0
    with whole_folder(out) as unfinished:
        folder = unfinished / IMAGES
        final_folder = (out / IMAGES).absolute()
        prompts = dataset.with_format(None).select_columns("prompt")
        for row, prompt_row, image in zip(rows_with_sizes(dataset), prompts, stored_images(dataset), strict=True):
            truth = {name: row[name] for name in SCORED_COLUMNS if row.get(name) is not None}
            if not any(truth.get("reader_boxes", truth.get("boxes", ()))):
                negatives += 1
            table_row = TableRow(
                messages=marked_messages(prompt_row["prompt"]),
                image=_place_image(image, folder, final_folder),
                truth=json.dumps(truth, ensure_ascii=False),
                source=row.get("source") or source,
                split=split,
                number=len(rows),
                id=None if row.get("id") is None else str(row["id"]),
                limits=set_limits,
            )
            rows.append(table_row)
            on_progress(f"writing {path.name}", len(rows), dataset.num_rows)
        if layout.ending == "jsonl":
            text = "".join(json.dumps(layout.row(row), ensure_ascii=False) + "\n" for row in rows)
            (unfinished / path.name).write_text(text, encoding="utf-8", newline="\n")
        else:
            import pyarrow
            import pyarrow.parquet as parquet

            # The types of the columns come from a row with an id: ids that are all None would give a column no type.
            schema = pyarrow.Table.from_pylist([layout.row(rows[0]._replace(id=""))]).schema
            table = pyarrow.Table.from_pylist(list(map(layout.row, rows)), schema=schema)
            parquet.write_table(table, unfinished / path.name)
        images = len(list(folder.glob("*")))
    values = {"path": shlex.quote(str(path.absolute())), "least": limits.least, "most": limits.most}
    # A line of the configuration with a limit that is not set is left out.
    unset_marks = [f"{{{name}}}" for name, value in values.items() if value is None]
    config_lines = [line.format(**values) for line in layout.lines if not any(mark in line for mark in unset_marks)]
    return {"path": path, "rows": len(rows), "negatives": negatives, "images": images, "lines": config_lines}


def marked_messages(prompt: Any) -> list[dict[str, str]]:
    """The turns of a prompt as texts, with `<image>` at the place of the image.

    Args:
        prompt: as :func:`grounding_rewards.data.prompts.conversation` takes it.

    Raises:
        ValueError: its words contain such a mark, or it has more than one image.

    Example:
        >>> marked_messages("Where is the mass?")
        [{'role': 'user', 'content': '<image>Where is the mass?'}]
    """
    words = prompt_words(prompt)
    # Such a word of the prompt would be taken for an image; verl puts other media in place of the last two.
    for mark in (_MARK, "<video>", "<audio>"):
        if mark in words:
            raise ValueError(f"the words of its prompt contain {mark}, which stands for an image there; remove it")
    messages = []
    for turn in conversation(prompt):
        content = "".join(_MARK if part["type"] == "image" else part["text"] for part in turn["content"])
        messages.append({"role": turn["role"], "content": content})
    images = sum(message["content"].count(_MARK) for message in messages)
    if images != 1:
        raise ValueError(f"its prompt shows {images} images, and the row has one; show it once")
    return messages


def one_problem(messages: Sequence[Mapping[str, str]]) -> str:
    """The turns as one text, EasyR1's column `problem`, of which it makes a turn of the user: the system's text first.

    Raises:
        ValueError: there are turns other than one of the user, and one of the system before it.

    Example:
        >>> one_problem([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "<image>Where?"}])
        'Be brief.\\n\\n<image>Where?'
    """
    roles = [message["role"] for message in messages]
    if roles not in (["user"], ["system", "user"]):
        raise ValueError(f"its prompt has the turns {', '.join(roles)}, and EasyR1 knows one of the user; shorten it")
    return "\n\n".join(message["content"] for message in messages)


def _checked_rows(
    dataset: Dataset, trainer: str, box_format: str | None, processor: Any, limits: PixelLimits, bad_rows: str
) -> Dataset:
    """The rows with prompts, box format and a trainer's sizes; rows that a reward could not use are refused or dropped.

    They are checked twice: first all that needs no reward, so that prompts can be written and images measured; in the
    end whether the reward R4 could be earned with these sizes.
    """
    if "image" not in dataset.column_names:
        raise ValueError(
            f"Expected a column image in the dataset, got {', '.join(sorted(dataset.column_names))}. Add the images."
        )
    stated_format = None if box_format is None else get_box_format(box_format)
    if stated_format is None and "box_format" not in dataset.column_names:
        raise ValueError("Expected --box-format, as the dataset has no column box_format, got none. Name it.")
    format_names = dataset["box_format"] if stated_format is None else ()
    formats = box_formats_of(stated_format, [name for name in format_names if name])
    resized_formats = [fmt.name for fmt in formats if fmt.space.frame == "resized"]
    if resized_formats and not limits_area(processor):
        processor_name = "none" if processor is None else type(processor).__name__
        raise ValueError(
            f"Expected --model with a processor of the Qwen2-VL kind for the box format {resized_formats[0]}, which "
            f"counts in pixels of the resized image, got {processor_name}. Name the model that will be trained."
        )
    dataset = check_dataset(add_prompts(dataset, stated_format), name="the dataset", bad_rows=bad_rows)

    def prompt_of(prompt: Any) -> Any:
        """The messages of a prompt with marks for images; for EasyR1 all of them as one text."""
        messages = marked_messages(prompt)
        return one_problem(messages) if trainer == "easyr1" else messages

    prompts = dataset.with_format(None)["prompt"]
    expected = f"a prompt that {trainer} can show"
    dataset, _ = apply_to_rows(dataset, prompts, prompt_of, expected, "the dataset", bad_rows)
    if box_format is not None:
        dataset = with_column(dataset, "box_format", [box_format] * dataset.num_rows)
    dataset = _with_trainer_sizes(dataset, trainer, processor, limits, bad_rows)
    return check_dataset(dataset, get_reward("R4", box_format=stated_format), name="the dataset", bad_rows=bad_rows)


def _with_trainer_sizes(dataset: Dataset, trainer: str, processor: Any, limits: PixelLimits, bad_rows: str) -> Dataset:
    """The rows of images that the trainer can resize, with resized sizes by its rule instead of any that they have."""
    resized_columns = ("resized_width", "resized_height")
    dataset = dataset.remove_columns([name for name in resized_columns if name in dataset.column_names])
    if not limits_area(processor):
        # The box format does not count in resized pixels: `_checked_rows` has refused it otherwise.
        return dataset

    def size(row: Mapping[str, Any]) -> tuple[int, int]:
        """The size to which the trainer resizes the image of a row."""
        width, height = row["image_size"]
        return trainer_size(trainer, processor, width, height, limits)

    expected = f"an image that {trainer} can resize"
    dataset, sizes = apply_to_rows(dataset, rows_with_sizes(dataset), size, expected, "the dataset", bad_rows)
    # All widths, then all heights.
    for name, sides in zip(resized_columns, zip(*sizes, strict=True), strict=True):
        dataset = dataset.add_column(name, list(sides))
    return dataset


def _place_image(image: Any, folder: Path, final_folder: Path) -> str:
    """The absolute path of a file that every program decodes to this image; it is written if there is none.

    Args:
        image: as the dataset stores it, with `path` or `bytes`.
        folder: where a new file is written.
        final_folder: the path to which the caller moves that folder, with which the path of a new file begins.
    """
    is_file = image["bytes"] is None
    # None for a DICOM file, which trainers cannot read.
    stored_image = None if is_file and is_dicom(image["path"]) else load_image(image)
    # `shown_image` returns the same object if it changes nothing.
    if stored_image is None or shown_image(stored_image) is not stored_image:
        # Trainers would not read this image, or with other greys.
        buffer = io.BytesIO()
        open_image(image).save(buffer, "PNG")
        data, ending = buffer.getvalue(), "png"
    elif is_file:
        return str(Path(image["path"]).absolute())
    else:
        data, ending = image["bytes"], str(stored_image.format).lower()
    # Named by its content, an image that several rows show is written once.
    name = f"{hashlib.sha256(data).hexdigest()[:24]}.{ending}"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / name).exists():
        (folder / name).write_bytes(data)
    return str(final_folder / name)


class TableLayout(NamedTuple):
    """The layout of the table of a trainer.

    Attributes:
        ending: of the name of the file: `parquet` or `jsonl`.
        row: makes a row of the table.
        lines: of the trainer's configuration; those with an unset limit are left out.
    """

    ending: str
    row: Callable[[TableRow], dict[str, Any]]
    lines: tuple[str, ...]


TABLES: Mapping[str, TableLayout] = {
    "verl": TableLayout(
        "parquet",
        lambda row: {
            "data_source": row.source, "prompt": row.messages, "images": [{"image": row.image} | row.limits],
            "ability": "grounding", "reward_model": {"style": "rule", "ground_truth": row.truth},
            "extra_info": {"split": row.split, "index": row.number, "id": row.id},
        },
        ("data.train_files={path}", "data.prompt_key=prompt", "data.image_key=images"),
    ),
    "easyr1": TableLayout(
        "parquet",
        lambda row: {"problem": one_problem(row.messages), "answer": row.truth, "images": [row.image]},
        (
            "data.train_files={path}", "data.prompt_key=problem", "data.answer_key=answer", "data.image_key=images",
            "data.format_prompt=null", "data.min_pixels={least}", "data.max_pixels={most}",
        ),
    ),
    "ms-swift": TableLayout(
        "jsonl",
        # ms-swift logs only `solution`, from which `inspect` scores its log.
        lambda row: {
            "messages": row.messages, "images": [row.image], "ground_truth": row.truth, "solution": row.truth,
        },
        ("export MIN_PIXELS={least}", "export MAX_PIXELS={most}", "--dataset {path}"),
    ),
    "openrlhf": TableLayout(
        "jsonl",
        lambda row: {
            "prompt": row.messages, "label": row.truth, "images": [row.image], "datasource": row.source,
        },
        (
            "--data.prompt_dataset {path}", "--data.input_key prompt", "--data.label_key label",
            "--data.image_key images", "--data.max_images_per_prompt 1", "--data.apply_chat_template",
        ),
    ),
}  # fmt: skip
"""The trainers for which there is a table."""
