"""Samples of ms-swift for grounding, whose boxes are in `objects` and not in the text.

Files, one sample a line, with a row per image and conversation::

    {"messages": [{"role": "user", "content": "<image>Find the <ref-object>"}, {"role": "assistant",
     "content": "<bbox><bbox>"}], "images": ["a.jpg"], "objects": {"ref": ["nodule"], "bbox": [[1, 2, 30, 40],
     [50, 60, 70, 80]], "bbox_type": "real"}}

`bbox` is xyxy in pixels of the image (`real`, also when `bbox_type` is left out) or in fractions of it (`norm1`). One
`ref` names all boxes of a row; of several, each names one box, in order.
Negative: an image all of whose rows have no box.
Source: https://github.com/modelscope/ms-swift, docs/source_en/Customization/Custom-dataset.md.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from grounding_rewards.boxes import is_box
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.metrics.prediction import UNNAMED
from grounding_rewards.sources.base import Images, register_source, sound_images
from grounding_rewards.sources.documents import JsonRow, grouped_samples, objects_in
from grounding_rewards.sources.tables import RowPlace, header_size, scaled_box

# By value of `bbox_type`, whether boxes are fractions of the image.
_ARE_FRACTIONS = {"real": False, "norm1": True}

_PLACEHOLDER = re.compile("<ref-object>|<bbox>")
# Names (r) and boxes (b) in an order in which each name is that of one box.
_PAIRED = re.compile("r*b*|(?:rb)*|(?:br)*")
_BOXES_IN_TEXT = re.compile(r"<\|box_start\|>|<box>|bbox_2d")
# Boxes in what the assistant says: keys and corners by name, or four numbers in brackets or alone on a line.
_BOXES_IN_ANSWER = re.compile(
    r"""\bbox_2d\b|<loc\d|\b(?:bbox|box|bounding[ _]box)(?:es)?["']?\s*[:=]|\bx_?(?:1|min)["']?\W{1,4}\d"""
    r"|[\[({<]\D{0,16}(?:\d+(?:\.\d+)?\D{1,16}){3}\d|^\W*(?:\d+(?:\.\d+)?\W{1,4}){3}\d+(?:\.\d+)?\W*$",
    re.IGNORECASE | re.MULTILINE,
)


@register_source("ms-swift")
def read_ms_swift(
    root: str | Path, *, split: str | None = None, annotations: str = "{split}.jsonl", images: str = "."
) -> Images:
    """The images of ms-swift's grounding samples; all rows of one image are one image.

    Args:
        root: the folder of the dataset.
        split: name of a split; `validation` finds `val` and `valid` too; None takes all.
        annotations: the file of samples relative to the root, `.jsonl` or `.json`; `{split}` stands for the split.
        images: the folder of `images`, likewise.

    Returns:
        Images in the order of the file. Label and phrase of a box are its `ref`, or `finding`
        where a row has none; width and height are None unless a box needed them.

    Raises:
        ValueError: no such file; while iterating, a point instead of a box, a row with several images, an unknown
            `bbox_type`, boxes as text, or boxes whose `ref` is not clear.

    Example:
        >>> import json, tempfile
        >>> row = {"messages": [{"role": "user", "content": "<image>Find the <ref-object>"}], "images": ["a.png"],
        ...        "objects": {"ref": ["mass"], "bbox": [[1, 2, 11, 22]]}}
        >>> with tempfile.TemporaryDirectory() as root:
        ...     _ = Path(root, "train.jsonl").write_text(json.dumps(row))
        ...     [(image.file, image.boxes, image.labels) for image in read_ms_swift(root)]
        [('a.png', [[1.0, 2.0, 11.0, 22.0]], ['mass'])]
    """
    root = Path(root)
    samples = grouped_samples(root, annotations, split, "images")

    def image(file_split: str | None, name: str, rows: Sequence[JsonRow]) -> AnnotatedImage:
        """The image of that name, with the boxes and names of all its rows."""
        file = PurePosixPath(images, name).as_posix()
        boxes, labels, size = [], [], None
        for place, row in rows:
            row_boxes, are_fractions, names = _objects(place, row)
            if are_fractions and row_boxes:
                # Only fractions need the size: the image may be elsewhere.
                size = size or header_size(root / file)
                row_boxes = [scaled_box(box, *size) for box in row_boxes]
            boxes += row_boxes
            labels += names
        # Where no row names a box, there are no phrases.
        phrases = tuple(labels) if any(label != UNNAMED for label in labels) else ()
        width, height = size or (None, None)
        return AnnotatedImage(file, file, boxes, labels, width, height, split=file_split, phrases=phrases)

    return sound_images(image, samples)


def _objects(place: RowPlace, row: Mapping[str, Any]) -> tuple[list[list[float]], bool, list[str]]:
    """The boxes of a row, whether they are fractions of the image, and the name of each."""
    # All that is said, and what the assistant says of it.
    text = answer = ""
    for message in objects_in(row.get("messages")):
        content = str(message.get("content"))
        text += content
        if message.get("role") in ("assistant", "gpt"):
            answer += content
    objects = row.get("objects") or {}
    # Where `objects` is no mapping, there are no lists, and the row is refused.
    boxes = refs = None
    if isinstance(objects, dict):
        boxes, refs = objects.get("bbox") or [], objects.get("ref") or []
    if not isinstance(boxes, list) or not isinstance(refs, list):
        raise place.error("`objects` with lists of bbox and ref", objects, "Correct the line.")
    # A row with boxes in its text alone would be read as a negative.
    if not boxes and (_BOXES_IN_TEXT.search(text) or _BOXES_IN_ANSWER.search(answer)):
        fix = "Boxes as text need a box format: write the rows as VLM-R1's and read them with vlm-r1."
        raise place.error("boxes in `objects`", text[:200], fix)
    are_fractions = place.one_of(_ARE_FRACTIONS, str(objects.get("bbox_type") or "real"))
    bad_boxes = [box for box in boxes if not is_box(box)]
    if bad_boxes:
        raise place.error("x1, y1, x2, y2 for every bbox", bad_boxes[0], "A point is no box: drop the row.")
    # In the text a placeholder stands for each ref and box: "rb" for <ref-object><bbox>.
    order = "".join("b" if mark == "<bbox>" else "r" for mark in _PLACEHOLDER.findall(text))
    if order.count("b") > len(boxes):
        raise place.error(f"a box for each of {order.count('b')} <bbox>", boxes, "Add the boxes, or drop the row.")
    # Where there is no box, the names are those of findings that are not there. Of several names each is that of one
    # box only if the text has them in pairs, or all names and then all boxes.
    if boxes and len(refs) > 1 and not (len(refs) == len(boxes) and _PAIRED.fullmatch(order)):
        got = f"{len(refs)} refs and {len(boxes)} boxes in {text[:200]}"
        raise place.error("one ref for all boxes, or one for every bbox,", got, "Name each box by a ref of its own.")
    names = [str(ref) for ref in refs or [UNNAMED]]
    # A single name is that of all boxes; without a box no name is needed.
    if len(names) != len(boxes):
        names = names[:1] * len(boxes)
    return [[float(value) for value in box] for box in boxes], are_fractions, names
