"""PadChest-GR: chest radiographs with sentences of a report, in English and Spanish, and the boxes of up to two
readers.

Folder::

    grounded_reports_20240819.json    a list of {StudyID, ImageID, findings: [{sentence_en, sentence_es, abnormal,
                                      boxes, extra_boxes, labels, ...}]}
    master_table.csv                  ImageID, PatientID, split, StudyDate and more; a row per study and label
    <ImageID>                         16-bit PNG, anywhere below the folder

Readers: `boxes` and `extra_boxes` are independent sets of two readers, who have these names in `readers`; the second
set is empty where nobody read a second time, so `read_by` names it only where it has boxes.
Negative: an image without an abnormal sentence. An image with abnormal sentences but no box at all is not negative, and
is left out.
Boxes: xyxy as fractions of the image, converted with the size in the image's header.
Labels: a sentence can have several; they are joined by `|`.
Paper: de Castro et al., arXiv 2411.05085.
Access: form of BIMCV.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from grounding_rewards.boxes import is_box
from grounding_rewards.columns import stated_name
from grounding_rewards.common.validation import check_word
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.sources import tables
from grounding_rewards.sources.base import Images, register_source, sound_images, split_name
from grounding_rewards.sources.documents import read_json_rows

Language = Literal["en", "es"]

_READERS = ("boxes", "extra_boxes")


@register_source(
    "padchest-gr",
    title="PadChest-GR",
    url="https://bimcv.cipf.es/bimcv-projects/padchest-gr/",
    licence="data use agreement of BIMCV for research; not redistributable",
)
def read_padchest_gr(root: str | Path, *, split: str | None = None, language: Language = "en") -> Images:
    """The images of PadChest-GR, each with all its sentences that have boxes.

    Args:
        root: the folder of the dataset.
        split: `train`, `validation` or `test`; None takes all.
        language: language of `phrases`: `en` or `es`.

    Returns:
        Images in the order of the reports; `phrases` has one per box, and `extra["study_id"]` the study.
    """
    tables.check_split(split, ("train", "validation", "test"))
    check_word("language", language, get_args(Language))
    path = tables.find_file(root, "grounded_reports_20240819.json")
    # As text, not as numbers: a name of 39 digits would be rounded.
    table = tables.read_rows(tables.find_file(root, "master_table.csv"), ("ImageID", "PatientID", "split"))
    facts = {image_id: (patient, split_name(name)) for _, (image_id, patient, name) in table}
    find, root = tables.image_finder(root), Path(root)

    def image(place: tables.RowPlace, report: Mapping[str, Any]) -> AnnotatedImage | None:
        """The image of a report; None if it is of another split, or has abnormal findings but no box."""
        name = str(report.get("ImageID"))
        # An image that the table lacks has neither patient nor split.
        patient, image_split = facts.get(name, ("", ""))
        if split not in (None, image_split):
            return None
        # The finding, the reader and the four numbers of each box.
        drawn_boxes = []
        try:
            for finding in report["findings"]:
                drawn_boxes += [(finding, reader, box) for reader in _READERS for box in finding.get(reader) or ()]
            is_abnormal = any(finding.get("abnormal") for finding in report["findings"])
            labels = ["|".join(finding.get("labels") or ()) for finding, _, _ in drawn_boxes]
            phrases = tuple(finding[f"sentence_{language}"] for finding, _, _ in drawn_boxes)
        except (AttributeError, KeyError, TypeError) as error:
            problem = f"{type(error).__name__}: {error}"
            raise place.error("findings with a sentence and boxes", problem, "Correct the report.") from None
        for _, _, box in drawn_boxes:
            # A box a little outside is left to later checks; numbers beyond half an image are pixels.
            if not is_box(box) or not all(-0.5 <= value <= 1.5 for value in box):
                raise place.error("four fractions of the image for a box", box, "Correct the report.")
        # It has a finding that nobody located, so it is no negative.
        if is_abnormal and not drawn_boxes:
            return None
        readers = tuple(reader for _, reader, _ in drawn_boxes)
        # An empty second set says nothing: most images were read once.
        read_by = _READERS if "extra_boxes" in readers else ("boxes",)
        file = find(name, name)
        # Only boxes need the size: an image without is not opened.
        size = tables.header_size(root / file) if drawn_boxes else None
        boxes = [tables.scaled_box(box, *size) for _, _, box in drawn_boxes if size]
        width, height = size or (None, None)
        patient_id, own_split = stated_name(patient), stated_name(image_split)
        extra = {"study_id": str(report.get("StudyID"))}
        return AnnotatedImage(
            name, file, boxes, labels, width, height, patient_id, own_split, readers, read_by, phrases, extra=extra
        )

    return sound_images(image, read_json_rows(path, "ImageID"))
