"""Write the answer to an image as a measurement report in DICOM SR (TID 1500), each predicted box an image region.

Every report is marked as research: ContentQualification RESEARCH, UNVERIFIED, PRELIMINARY, a comment that says so, and
a device, not a person, as observer. It names the patient and the study of its image, as DICOM demands.

A box becomes a closed polyline of its corners in columns and rows of the stored image. As in the package, the top left
corner of the image is 0, 0 and the bottom right one the number of columns and rows. Labels are codes of a private
scheme, because no public one has every word that a model may write.

Source: DICOM PS3.16, TID 1500, 1410 and 1501; PS3.3, C.18.6.1.2 for the coordinates.
"""

from __future__ import annotations

import copy
import math
import re
import uuid
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from grounding_rewards.boxes import Boxes, valid_boxes
from grounding_rewards.images.decoding import has_shape
from grounding_rewards.images.dicom import DICOM_SUFFIXES, is_dicom
from grounding_rewards.metrics.prediction import Prediction
from grounding_rewards.sources.tables import image_finder

if TYPE_CHECKING:
    from highdicom.sr import CodedConcept, ComprehensiveSR
    from pydicom import Dataset

#: The comment in every report.
NOTICE = (
    "Research use only. Boxes of an algorithm that nobody has verified: not for diagnosis, treatment or any other "
    "clinical use."
)

#: The private coding scheme of labels.
SCHEME = "99GROUNDING"

_VERSION = version("grounding_rewards")
_NOTHING = "no finding"
_UNLABELLED = "unlabelled"
# Elements that anonymised images often lack; the standard allows them to be empty.
_MAY_BE_EMPTY = (
    "PatientID", "PatientName", "PatientBirthDate", "PatientSex", "AccessionNumber", "StudyID", "StudyDate",
    "StudyTime", "ReferringPhysicianName",
)  # fmt: skip
# Elements without which a report cannot refer to an image.
_NEEDED = ("StudyInstanceUID", "SeriesInstanceUID", "SOPInstanceUID", "SOPClassUID", "Modality", "Rows", "Columns")
# Characters of the longest meaning of a code, and of the longest series description, that the standard allows.
_LONGEST = 64


def findings_report(image: Prediction, source: Dataset, *, model: str) -> ComprehensiveSR:
    """The report of one image.

    Args:
        image: with its answer. Boxes are clipped to the image; those that cannot be drawn are left out.
        source: the header of the DICOM image that the answer is about. If ``image`` is that image at another scale,
            boxes are scaled.
        model: the name of the model, for the observer.

    Returns:
        A `highdicom.sr.ComprehensiveSR` in a new series. A no-finding statement becomes one measurement group of the
        whole image with the finding `no finding`.

    Raises:
        ValueError: the answer has neither a box that can be drawn nor a no-finding statement; the image has another
            shape than the source; or the source lacks what a report must refer to.
        ImportError: the extra `dicom` is not installed.

    Example:
        >>> from pydicom import dcmread
        >>> from pydicom.data import get_testdata_file
        >>> source = dcmread(get_testdata_file("MR_small.dcm"))
        >>> image = Prediction("MR_small", 64, 64, pred=[[20, 30, 60, 50]], pred_labels=["mass"])
        >>> report = findings_report(image, source, model="my-model")
        >>> report.VerificationFlag, report.ContentQualification
        ('UNVERIFIED', 'RESEARCH')
        >>> from highdicom.sr import MeasurementReport
        >>> content = MeasurementReport.from_sequence(report.content)
        >>> (group,) = content.get_planar_roi_measurement_groups()
        >>> group.roi.value[[0, 2]].tolist(), group.finding_type.meaning
        ([[20.0, 30.0], [60.0, 50.0]], 'mass')
    """
    try:
        from highdicom import UID, sr
        from highdicom.coding_schemes import CodingSchemeIdentificationItem
        from pydicom.sr.codedict import codes
        from pydicom.uid import ExplicitVRLittleEndian
    except ImportError as error:
        raise ImportError(
            "Expected highdicom for DICOM SR, got none. Install it with `pip install 'grounding_rewards[dicom]'`."
        ) from error

    evidence = _completed_header(source, image.id)
    name = _short_line(model)
    groups = _groups(image, evidence, name)
    device = sr.DeviceObserverIdentifyingAttributes(
        uid=UID.from_uuid(str(uuid.uuid5(uuid.NAMESPACE_URL, f"{name} {_VERSION}"))),
        name=name,
        manufacturer_name="grounding_rewards",
        model_name=name,
    )
    observer = sr.ObserverContext(codes.DCM.Device, device)
    report = sr.MeasurementReport(
        observation_context=sr.ObservationContext(observer_device_context=observer),
        procedure_reported=codes.LN.XRUnspecifiedBodyRegion,
        imaging_measurements=groups,
    )
    report[0].ContentSequence.append(
        sr.TextContentItem(codes.DCM.Comment, NOTICE, relationship_type=sr.RelationshipTypeValues.CONTAINS)
    )
    scheme = CodingSchemeIdentificationItem(SCHEME, name="labels as a model or a dataset writes them")
    try:
        return sr.ComprehensiveSR(
            evidence=[evidence],
            content=report[0],
            series_instance_uid=UID(),
            series_number=1,
            sop_instance_uid=UID(),
            instance_number=1,
            manufacturer="grounding_rewards",
            manufacturer_model_name=name,
            software_versions=_VERSION,
            series_description=f"RESEARCH ONLY, unverified boxes: {name}"[:_LONGEST],
            content_qualification="RESEARCH",
            coding_schemes=[scheme],
            transfer_syntax_uid=ExplicitVRLittleEndian,
            is_complete=True,
            specific_character_set="ISO_IR 192",
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            f"Expected a header whose patient and study can be copied for image {image.id!r}, got {error}. Correct it, "
            "or leave the image out."
        ) from error


def write_dicom_sr(
    images: Sequence[Prediction], out: str | Path, *, model: str, dicom: str | Path | None = None
) -> tuple[int, dict[str, list[str]]]:
    """Write one report per image into a folder.

    Args:
        images: with their answers.
        out: the folder; the name of a file has its number and the image's id.
        model: the name of the model.
        dicom: the folder of the DICOM images, searched with its subfolders for names that are the id or the image's.
            Without it, the image of a prediction must be a DICOM file.

    Returns:
        The number of reports, and the ids of the images without a report, by the reason in words.

    Raises:
        ValueError: no image has a DICOM file, a file cannot be read, two have one name, or as :func:`findings_report`.
        ImportError: the extra `dicom` is not installed.
    """
    find_file = None if dicom is None else image_finder(dicom, DICOM_SUFFIXES)
    files = [_dicom_file(image, find_file) for image in images]
    paths = [None if file is None else Path(dicom or "", file) for file in files]
    if not any(paths):
        raise ValueError(
            f"Expected DICOM files called after the images' ids or images, got none for {len(images)} images. "
            "Name their folder with --dicom."
        )
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    left_out: dict[str, list[str]] = {}
    reports = 0
    for number, (image, path) in enumerate(zip(images, paths, strict=True), start=1):
        if path is None:
            left_out.setdefault("there is no DICOM file", []).append(image.id)
        elif not _has_answer(image):
            left_out.setdefault("the answer has neither a box nor a no-finding statement", []).append(image.id)
        else:
            reports += 1
            report = findings_report(image, _read_header(path), model=model)
            safe_id = re.sub(r"[^A-Za-z0-9.-]+", "_", image.id)[-80:]
            report.save_as(out / f"{number:06d}_{safe_id}.dcm")
    return reports, left_out


def drawable_boxes(boxes: Boxes, width: float, height: float) -> tuple[Boxes, NDArray[np.int64]]:
    """The boxes that can be drawn on an image, clipped to its edges, and their indices.

    Args:
        boxes: ``(n, 4)`` xyxy in pixels of the image; invalid ones, and those outside the image, are left out.
        width: of the image in pixels.
        height: of the image in pixels.

    Returns:
        ``(k, 4)`` xyxy inside the image, and the k indices into ``boxes``.

    Example:
        >>> drawable_boxes(np.array([[-5.0, 0, 5, 5], [20, 0, 30, 5], [5, 5, 1, 1]]), 10, 10)
        (array([[0., 0., 5., 5.]]), array([0]))
    """
    clipped = np.clip(boxes, 0, [width, height, width, height])
    # Both are checked: clipping makes an infinite corner finite, and a box outside the image one without area.
    is_drawable = valid_boxes(boxes) & valid_boxes(clipped)
    return clipped[is_drawable], np.flatnonzero(is_drawable)


def _groups(image: Prediction, source: Dataset, model: str) -> list[Any]:
    """The measurement groups of a report: one for each box, or one for a no-finding statement.

    Args:
        image: with its answer.
        source: the header of its DICOM image, to which the groups refer.
        model: the name of the model.

    Raises:
        ValueError: the answer has neither, or the image has another shape than the source.
    """
    from highdicom import UID, sr
    from pydicom.sr.codedict import codes

    if not _has_answer(image):
        raise ValueError(
            f"Expected boxes or a no-finding statement in the answer to image {image.id!r}, got neither (its status is "
            f"{image.status}). Leave it out: a report would say that nothing was found."
        )
    algorithm = sr.AlgorithmIdentification(name=model, version=_VERSION)
    boxes, indices = drawable_boxes(image.pred, image.width, image.height)
    if not len(boxes):
        # No boxes, but an answer: it states that nothing was found.
        whole_image = sr.SourceImageForMeasurementGroup.from_source_image(source)
        group = sr.MeasurementsAndQualitativeEvaluations(
            sr.TrackingIdentifier(UID(), _NOTHING),
            finding_type=_coded(_NOTHING),
            algorithm_id=algorithm,
            source_images=[whole_image],
        )
        return [group]
    scaled = boxes * _scale(image, source)
    groups = []
    for (x1, y1, x2, y2), index in zip(scaled.tolist(), indices.tolist(), strict=True):
        region = sr.ImageRegion(
            graphic_type=sr.GraphicTypeValues.POLYLINE,
            # Columns and rows of a closed rectangle.
            graphic_data=np.array([[x1, y1], [x2, y1], [x2, y2], [x1, y2], [x1, y1]]),
            source_image=sr.SourceImageForRegion.from_source_image(source),
        )
        # Of the answer's own boxes, `index` is that of this one. NaN means that no confidence was stated.
        score = float(image.pred_scores[index])
        confidence = None
        if math.isfinite(score):
            confidence = [sr.Measurement(_coded("stated confidence"), score, codes.UCUM.NoUnits)]
        groups.append(
            sr.PlanarROIMeasurementsAndQualitativeEvaluations(
                sr.TrackingIdentifier(UID(), f"box {index + 1}"),
                referenced_region=region,
                finding_type=_coded(image.pred_labels[index] or _UNLABELLED),
                algorithm_id=algorithm,
                measurements=confidence,
            )
        )
    return groups


def _has_answer(image: Prediction) -> bool:
    """Whether the answer to an image is a no-finding statement or has a box that can be drawn."""
    boxes, _ = drawable_boxes(image.pred, image.width, image.height)
    return image.status == "empty" or len(boxes) > 0


def _scale(image: Prediction, source: Dataset) -> list[float]:
    """The four factors, for x1, y1, x2 and y2, from pixels of the image to columns and rows of its DICOM image.

    Raises:
        ValueError: one image is not a scaled copy of the other.
    """
    image_size, source_size = (image.width, image.height), (source.Columns, source.Rows)
    # Either may be a smaller copy of the other, with sides rounded to pixels.
    if not (has_shape(image_size, source_size) or has_shape(source_size, image_size)):
        raise ValueError(
            f"Expected the DICOM image of {image.id!r} in the shape of {image.width:g} x {image.height:g} pixels, got "
            f"{source.Columns} x {source.Rows}. Name the folder of the images that the boxes were measured on."
        )
    return [source.Columns / image.width, source.Rows / image.height] * 2


def _coded(label: str) -> CodedConcept:
    """The code of a label in the private scheme: the label itself in lower case, with the label as its meaning."""
    from highdicom.sr import CodedConcept

    meaning = _short_line(label)
    return CodedConcept(meaning.lower(), SCHEME, meaning)


def _short_line(text: str) -> str:
    """A text in one line of at most 64 characters; control characters and backslashes, which DICOM uses, are spaces.

    A text of nothing else becomes `unlabelled`.
    """
    legal_text = "".join(character if character.isprintable() and character != "\\" else " " for character in text)
    return " ".join(legal_text.split())[:_LONGEST].strip() or _UNLABELLED


def _completed_header(source: Dataset, image_id: str) -> Dataset:
    """A copy of a header with missing elements added as empty; one that lacks what may not be empty is refused.

    Args:
        source: the header.
        image_id: the id of its image, for the error.
    """
    missing = [name for name in _NEEDED if name not in source]
    if missing:
        raise ValueError(
            f"Expected a DICOM image that can be referred to for {image_id!r}, got one without {', '.join(missing)}. "
            "Leave it out."
        )
    # Deep, as pydicom's shallow copy shares its elements with the source, which would get the missing ones too.
    completed = copy.deepcopy(source)
    for name in _MAY_BE_EMPTY:
        if name not in completed:
            setattr(completed, name, None)
    return completed


def _dicom_file(image: Prediction, find_file: Callable[[str], str] | None) -> str | Path | None:
    """The DICOM file of an image; None if there is none.

    Args:
        image: with its id and, where it has one, the path of its file.
        find_file: takes a name and returns the file of that name in the folder of the DICOM images, or an empty text;
            None if there is no such folder: then the image's own file has to be a DICOM file.
    """
    if find_file is None:
        path = Path(image.image or "")
        return path if is_dicom(path) and path.is_file() else None
    # An id may have the ending of a file; the image may be a copy, as PNG, that is called as its DICOM file.
    for name in (image.id, Path(image.id).stem, Path(image.image or image.id).stem):
        file = find_file(name)
        if file:
            return file
    return None


def _read_header(path: Path) -> Dataset:
    """Read the header of a DICOM file."""
    from pydicom import dcmread
    from pydicom.errors import InvalidDicomError

    try:
        return dcmread(path, stop_before_pixels=True)
    except (InvalidDicomError, OSError, EOFError) as error:
        raise ValueError(f"Expected a DICOM file in {path}, got {error}. Check the download.") from error
