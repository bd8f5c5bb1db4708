"""Which images are of one patient, by their column or by the names of their files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from grounding_rewards.columns import patient_key, patient_of

if TYPE_CHECKING:
    # The readers ask this module.
    from grounding_rewards.data.annotated_image import AnnotatedImage

_IN_NAMES = (
    # CheXpert, MURA, and what most people write themselves; BIDS
    re.compile(r"(?<![a-z])(?:patient|subject|sub-)[-_ ]?(\d+)", re.IGNORECASE),
    # MIMIC-CXR: files/p10/p10000032/s50414267/...
    re.compile(r"(?:^|/)p(\d{8})(?=[/_.])"),
    # NIH ChestX-ray14: 00000013_005.png
    re.compile(r"(?:^|/)(\d{8})_\d{3}\.\w+$"),
)

# Without what parts their words; what follows `id`, such as `_hash`, makes another column of it.
_COLUMNS = {f"{who}{what}" for who in ("patient", "subject", "person", "participant") for what in ("", "id", "key")}
_COLUMNS |= {"pid", "mrn", "patientname", "patientnumber", "empi", "empianon"}


def patient_column(columns: Iterable[str]) -> str | None:
    """The column that looks like the patient, by its name, where none is called `patient_id`; None without one.

    Example:
        >>> patient_column(["image", "Subject-ID", "age"]), patient_column(["patient_id", "PatientID"])
        ('Subject-ID', None)
    """
    columns = list(columns)
    alike = (name for name in columns if re.sub(r"[\W_]", "", name).casefold() in _COLUMNS)
    return None if "patient_id" in columns else next(alike, None)


def patient_in_name(file: str) -> str | None:
    """The patient that the name of a file tells, as :func:`grounding_rewards.columns.patient_key`; None without one.

    Example:
        >>> patient_in_name("train/patient00003/study1/view1.jpg"), patient_in_name("00000013_005.png")
        ('3', '13')
        >>> patient_in_name("IMG0000019.jpg") is None
        True
    """
    found = next(filter(None, (pattern.search(file) for pattern in _IN_NAMES)), None)
    return None if found is None else patient_key(found[1])


def patient_of_row(row: Mapping[str, Any]) -> str | None:
    """Whose image a row is: by `patient_id`, else by the name of its file; None where neither tells.

    Example:
        >>> patient_of_row({"patient_id": "0003"}), patient_of_row({"file": "patient3_study2.png"}), patient_of_row({})
        ('3', '3', None)
    """
    file = row.get("file")
    return patient_of(row) or (patient_in_name(file) if isinstance(file, str) else None)


def patient_of_image(image: AnnotatedImage) -> str | None:
    """Whose image it is, as :func:`patient_of_row`.

    Example:
        >>> from grounding_rewards.data.annotated_image import AnnotatedImage
        >>> patient_of_image(AnnotatedImage("a", "a.png", [], [], patient_id="0003"))
        '3'
    """
    return patient_of_row({"patient_id": image.patient_id, "file": image.file})
