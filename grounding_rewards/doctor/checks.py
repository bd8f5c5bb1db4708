"""What the doctor looks for: how bad each mistake is, why it matters, and what to do about it."""

from __future__ import annotations

from typing import NamedTuple

SEVERITIES = ("error", "warning", "note")
#: A side shorter than this many pixels of the image that the model sees can't be learned.
LEAST_SIDE = 4.0
#: Boxes of one label with a larger IoU are taken for one finding drawn twice.
NEAR_DUPLICATE = 0.95


class Check(NamedTuple):
    """A mistake that is looked for: how bad it is, what is counted, what it is called, why it matters, what to do."""

    severity: str
    unit: str
    title: str
    why: str
    fix: str


CHECKS = {
    "unfinished-folder": Check(
        "error",
        "folder",
        "A prepared folder that is not finished",
        "Training refuses it: films are missing, and nobody would notice.",
        "Run the same `grounding-rewards prepare` again: it goes on.",
    ),
    "unreadable-row": Check(
        "error",
        "films",
        "Rows that cannot be read",
        "Loading stops at such a row.",
        "Write every row as one object with file (or image), width, height, boxes (a list of lists) and labels.",
    ),
    "box-order": Check(
        "error",
        "boxes",
        "Boxes in another order than x1, y1, x2, y2",
        "Every reward compares with the wrong place; the model is taught to miss.",
        "",
    ),
    "wrong-frame": Check(
        "error",
        "boxes",
        "Boxes drawn on another size than the film's",
        "All boxes lie in one corner of the film, or off it; the model is taught to miss.",
        "",
    ),
    "one-corner": Check(
        "error",
        "boxes",
        "All boxes in one corner of the film",
        "Boxes that were drawn on a smaller copy look like this, and findings of one kind may.",
        "",
    ),
    "normalised-boxes": Check(
        "error",
        "boxes",
        "Boxes in parts of the film instead of pixels",
        "Taken for pixels, such a box is smaller than the film's first pixel, and no prediction can match it.",
        "Multiply x by width and y by height: boxes are pixels of the original image, whatever the model writes.",
    ),
    "not-finite": Check(
        "error",
        "boxes",
        "Boxes that are not four finite numbers",
        "Such a box matches nothing, and counts as missed in every reward.",
        "Drop these boxes, or restore the missing coordinates from the source; if a film loses its only box, decide "
        "whether it is a negative film.",
    ),
    "swapped-corners": Check(
        "error",
        "boxes",
        "Boxes with x2 < x1 or y2 < y1",
        "Such a box has no area and matches nothing.",
        "Sort the corners: [min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)], after a look at some of them.",
    ),
    "no-area": Check(
        "error",
        "boxes",
        "Boxes without area",
        "A point or a line matches nothing, and counts as missed in every reward.",
        "Drop these boxes; if points are meant, give them the size of the finding.",
    ),
    "off-film": Check(
        "error",
        "boxes",
        "Boxes wholly outside the film",
        "Nothing can be seen there, and most formats can't say it.",
        "Check that the box belongs to this film and that width and height are the film's; else drop it.",
    ),
    "partly-off-film": Check(
        "error",
        "boxes",
        "Boxes that reach over the edge of the film",
        "Most formats can't say coordinates outside the film, so that the right answer never earns the full reward.",
        "Clip: min(max(x, 0), width) and min(max(y, 0), height). If many reach far over, width and height are wrong.",
    ),
    "missing-image": Check(
        "error",
        "films",
        "Images that are missing or cannot be read",
        "Training stops at such a film.",
        "Restore the file, or drop the row.",
    ),
    "missing-size": Check(
        "error",
        "films",
        "Films of unknown size",
        "Boxes can't be brought into the model's coordinates without the size of the film.",
        "Add the columns width and height: the size in pixels on which the boxes were drawn.",
    ),
    "exchanged-size": Check(
        "error",
        "films",
        "Width and height exchanged",
        "Sizes are [height, width] somewhere in the source; every relative coordinate is then wrong.",
        "Exchange width and height in these rows: numpy and DICOM (Rows, Columns) give the height first.",
    ),
    "image-size": Check(
        "error",
        "films",
        "Width and height that are not of the image's shape",
        "Boxes are then moved and stretched against what the model sees.",
        "Give in width and height the size on which the boxes were drawn. A smaller copy of the film is no mistake; a "
        "cropped, padded or squeezed one is, unless its boxes went with it.",
    ),
    "image-scale": Check(
        "warning",
        "films",
        "Images of another size than declared, unlike the others",
        "If the boxes were drawn on the image, or the image was cropped or padded, every box is moved.",
        "Where the boxes were drawn on the image, give its size in width and height. Where they were drawn on a larger "
        "original, nothing is wrong.",
    ),
    "duplicate-boxes": Check(
        "warning",
        "boxes",
        "The same box twice",
        "The right answer has to say the box as often as it is listed, and saying it once is punished.",
        "Keep one of each box and label on a film.",
    ),
    "near-duplicate-boxes": Check(
        "warning",
        "boxes",
        "Almost the same box twice",
        f"Boxes of one label with an IoU above {NEAR_DUPLICATE} are one finding drawn by several readers; the model "
        "would have to say it several times.",
        "Merge the readers before training: `grounding-rewards prepare … --readers consensus` (or majority, any-of).",
    ),
    "repeated-id": Check(
        "warning",
        "films",
        "The same id twice",
        "A row per box or per reader teaches that each box is all there is on the film, and punishes the others.",
        "Group the rows by film, so that one row has all boxes; give several questions about a film their own ids.",
    ),
    "repeated-film": Check(
        "warning",
        "films",
        "The same film twice",
        "The film counts twice, and if its boxes differ, the model is punished for either answer.",
        "Keep one row of each film and prompt, with all boxes; if the boxes differ, find out which are right.",
    ),
    "film-leak": Check(
        "error",
        "films",
        "Films in several splits",
        "The model has seen the answers: every figure on this split is too good.",
        "Take these films out of the training split.",
    ),
    "patient-leak": Check(
        "error",
        "patients",
        "Patients in several splits",
        "Films of one patient look alike, findings included: every figure on the held-out split is too good.",
        "Split by patient: `grounding-rewards prepare` does so wherever the source names patients.",
    ),
    "label-count": Check(
        "error",
        "films",
        "Labels that are not as many as the boxes",
        "It can't be told which label belongs to which box.",
        "Give one label for each box, in the same order.",
    ),
    "blank-label": Check(
        "warning",
        "boxes",
        "Boxes with a blank label",
        "The right answer then names a finding without a name.",
        'Name the finding, or call all of them "finding" if only places are of interest.',
    ),
    "label-spelling": Check(
        "warning",
        "labels",
        "Several spellings of one label",
        "Each spelling becomes a finding of its own in prompts, in label-aware rewards and in every table.",
        "Map them to one: `grounding_rewards.labels.normalize_label`, or a table of your own.",
    ),
    "label-words": Check(
        "warning",
        "labels",
        "Several words for one finding",
        "By the shared vocabulary these are one finding; counted apart, each is rarer than it is.",
        "Map them to one name with `grounding_rewards.labels.normalize_label`, or reward with "
        "`label_matching: synonyms`. If the dataset means different things by them, leave them.",
    ),
    "negatives": Check(
        "warning",
        "films",
        "Hardly any or nearly only films without boxes",
        "Without negative films a model learns that there is always something to find; with hardly any other it earns "
        "most by never answering.",
        "Mix films with and without findings, a quarter to a half without. For phrase grounding, where every phrase "
        "has a place, no negatives are needed.",
    ),
    "small-boxes": Check(
        "warning",
        "boxes",
        f"Boxes with a side below {LEAST_SIDE:g} pixels of what the model sees",
        "A 4-pixel nodule can't be learned: it is a fraction of one patch, and a box that is off by a pixel or two "
        "earns nothing.",
        "Feed larger images (max_pixels of the processor), crop, or leave these boxes out and say so.",
    ),
    "prompt-missing": Check(
        "error",
        "films",
        "Rows without a prompt",
        "The model is asked nothing.",
        "Add the column prompt: `grounding-rewards prepare` writes one per task.",
    ),
    "prompt-format": Check(
        "warning",
        "films",
        "Prompts that ask for another format than the parser reads",
        "A model that does what it is told earns nothing.",
        "Let the prompt state the box format, or declare the format that the prompt states.",
    ),
    "box-format": Check(
        "error",
        "films",
        "Rows with an unknown box format",
        "The reward refuses the row.",
        "Use a name of `grounding_rewards.list_box_formats()`.",
    ),
    "gold-length": Check(
        "error",
        "films",
        "Right answers that are longer than the model may write",
        "The answer is cut off before its last box, so that the full reward can't be earned.",
        "Raise max_completion_length, or drop the films with most boxes.",
    ),
    "gold-reward": Check(
        "error",
        "films",
        "Right answers that do not earn the full reward",
        "Written in the box format and read back, the row's own boxes are not found again: nobody can earn what is "
        "lost here.",
        "Use a box format with finer coordinates, larger images, or drop these boxes.",
    ),
}
"""Everything that is looked for, by name; `fix` is empty where it depends on what is found."""
