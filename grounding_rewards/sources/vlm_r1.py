"""Samples of VLM-R1, whose boxes are text of the answer, and of MedGround-R1, which are derived from them.

Files, one sample a line or an entry of a list, with a row per image and question::

    {"id": 1, "image": "a.jpg", "conversations": [{"from": "human", "value": "<image>Please provide the bounding box
     coordinate of the region this sentence describes: left effusion"}, {"from": "gpt", "value": "[12, 30, 220, 340]"}]}
    {"image": "a.jpg", "problem": "left effusion", "solution": [12, 30, 220, 340], "normalized_solution": [...]}

Optional: `width` and `height` of the image, else its header is read; `resized_width` and `resized_height`.
Negative: an image all of whose answers say that there is nothing.
Source: https://github.com/om-ai-lab/VLM-R1.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.metrics.prediction import UNNAMED
from grounding_rewards.parsing import BoxFormat, get_box_format, parse_boxes
from grounding_rewards.sources.base import Images, register_source, sound_images
from grounding_rewards.sources.documents import JsonRow, grouped_samples, objects_in, pixels
from grounding_rewards.sources.tables import RowPlace, header_size


@register_source("vlm-r1")
def read_vlm_r1(
    root: str | Path,
    *,
    split: str | None = None,
    box_format: str | Mapping[str, Any] | None = None,
    annotations: str = "{split}.jsonl",
    images: str = ".",
    phrase_after: str = "this sentence describes:",
) -> Images:
    """The images of VLM-R1's or MedGround-R1's samples; all questions about one image are one image.

    Args:
        root: the folder of the dataset.
        split: name of a split; `validation` finds `val` and `valid` too; None takes all.
        box_format: how the answers write boxes, which the numbers do not tell: a name or a mapping as
            `grounding_rewards.get_box_format` takes. For pixels of the image file:
            `{"syntax": "vlm-r1", "space": "pixel"}`.
        annotations: the file of samples relative to the root, `.jsonl` or `.json`; `{split}` stands for the split.
        images: the folder of `image`, likewise.
        phrase_after: the phrase is what follows this in the question; the whole question where it is not in it, or
            empty.

    Returns:
        Images in the order of the file. A label is the one that the answer states, else
        `finding`; `phrases` has the question's phrase for each box.

    Raises:
        ValueError: no such file, no or an unknown box format; while iterating, an answer that cannot be read whole, a
            row with several images, or a format in pixels of the resized image without its size.

    Example:
        >>> import tempfile
        >>> row = {"image": "a.png", "width": 40, "height": 30, "problem": "a mass", "solution": [250, 500, 750, 1000]}
        >>> with tempfile.TemporaryDirectory() as root:
        ...     _ = Path(root, "train.jsonl").write_text(json.dumps(row))
        ...     [(image.file, image.boxes, image.phrases) for image in read_vlm_r1(root, box_format="qwen3-vl")]
        [('a.png', [[10.0, 15.0, 30.0, 30.0]], ('a mass',))]
    """
    if box_format is None:
        raise ValueError(
            "Expected a name or a mapping for box_format, got None. State how the answers write boxes, for example "
            '{"syntax": "vlm-r1", "space": "pixel"} for pixels of the image file.'
        )
    fmt = get_box_format(box_format)
    root = Path(root)
    samples = grouped_samples(root, annotations, split, "image")

    def image(file_split: str | None, name: str, rows: Sequence[JsonRow]) -> AnnotatedImage:
        """The image of that name, with the boxes, labels and phrases of all its rows."""
        file = PurePosixPath(images, name).as_posix()
        # The size is that of the image, so that the first row has it for all.
        _place, first_row = rows[0]
        width, height = pixels(first_row.get("width")), pixels(first_row.get("height"))
        if width is None or height is None:
            width, height = header_size(root / file)
        boxes, labels, phrases = [], [], []
        for place, row in rows:
            question, row_boxes, row_labels = _answer(place, row, fmt, width, height)
            boxes += row_boxes
            labels += row_labels
            # rpartition gives the whole question where it does not hold these words.
            phrase = question.rpartition(phrase_after)[2].strip() if phrase_after else question
            phrases += [phrase] * len(row_boxes)
        return AnnotatedImage(file, file, boxes, labels, width, height, split=file_split, phrases=tuple(phrases))

    return sound_images(image, samples)


def _answer(
    place: RowPlace, row: Mapping[str, Any], fmt: BoxFormat, width: int, height: int
) -> tuple[str, list[list[float]], list[str]]:
    """The question of a row, and the boxes of its answer with their labels.

    Args:
        place: of the row, for errors.
        row: in the layout of MedGround-R1, with `solution`, or of VLM-R1, with `conversations`.
        fmt: how answers write boxes.
        width: of the image in pixels.
        height: likewise.
    """
    if "solution" in row:
        question, answer = row.get("problem"), row["solution"]
        # The parser reads text, and a solution may be a list of numbers.
        answer = answer if isinstance(answer, str) else json.dumps(answer)
    else:
        # What each speaker says; a speaker with a second turn leaves fewer entries than turns.
        conversation = objects_in(row.get("conversations"))
        turns = {str(turn.get("from")): turn.get("value") for turn in conversation}
        # Boxes of a second answer would not be told from those of the first.
        if len(turns) < len(conversation):
            speakers = [turn.get("from") for turn in conversation]
            raise place.error("one question and one answer", speakers, "Write a line for each question.")
        question, answer = turns.get("human"), turns.get("gpt")
    if not isinstance(question, str) or not isinstance(answer, str):
        expected = "conversations of human and gpt, or problem and solution,"
        raise place.error(expected, sorted(row), "Point to a file of VLM-R1 or MedGround-R1 samples.")
    # The size at which the model saw the image, which numbers in its pixels need.
    resized = (pixels(row.get("resized_width")), pixels(row.get("resized_height")))
    if fmt.space.frame == "resized" and None in resized:
        expected = f"resized_width and resized_height for the box format {fmt.name}"
        fix = 'Add them, or state {"syntax": ..., "space": "pixel"} where the numbers are pixels of the image file.'
        raise place.error(expected, resized, fix)
    parsed = parse_boxes(answer, fmt, width=width, height=height, resized_width=resized[0], resized_height=resized[1])
    # "empty" says that there is nothing; `rejected` counts, by reason, what looked like a box and is none.
    if parsed.status not in ("boxes", "empty") or parsed.rejected:
        expected = f"boxes in the box format {fmt.name}, or a no-finding statement,"
        fix = f"Correct the answer, or state another box format ({parsed.status}; {parsed.rejected})."
        raise place.error(expected, answer[:200], fix)
    labels = [label or UNNAMED for label in parsed.labels]
    return question.replace("<image>", "").strip(), parsed.boxes.tolist(), labels
