"""Drawn radiographs as DICOM files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from grounding_rewards.data.synthetic.radiographs import Radiograph
from grounding_rewards.legal import check_word

_DIGITAL_XRAY_FOR_PRESENTATION = "1.2.840.10008.5.1.4.1.1.1.1"
_BITS = 12


def write_dicom(film: Radiograph, folder: str | Path, *, photometric_interpretation: str = "MONOCHROME2") -> Path:
    """Write a film as a radiograph of 12 bits with window and pixel spacing; `read_dicom` restores its pixels.

    Args:
        film: From `draw_radiograph`.
        folder: Created if it does not exist; the file is named by the id of the film.
        photometric_interpretation: `MONOCHROME1` stores the film inverted.

    Returns:
        The path of the file.

    Raises:
        ValueError: Another photometric interpretation.
        ImportError: The extra `dicom` is not installed.

    >>> import tempfile
    >>> from grounding_rewards.data.synthetic import draw_radiograph
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_dicom(draw_radiograph(3, "pa-256"), folder).name
    'pa-256-0-3.dcm'
    """
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, generate_uid

    check_word("photometric_interpretation", photometric_interpretation, ("MONOCHROME1", "MONOCHROME2"))
    pixels = np.asarray(film.image).astype("<u2") << (_BITS - 8)
    width = 255 << (_BITS - 8)
    inverse = photometric_interpretation == "MONOCHROME1"
    if inverse:
        pixels = width - pixels

    dataset = Dataset()
    dataset.SOPClassUID = _DIGITAL_XRAY_FOR_PRESENTATION
    dataset.SOPInstanceUID = generate_uid(entropy_srcs=[film.id, "instance"])
    dataset.StudyInstanceUID = generate_uid(entropy_srcs=[film.id, "study"])
    dataset.SeriesInstanceUID = generate_uid(entropy_srcs=[film.id, "series"])
    dataset.PatientName, dataset.PatientID = "", ""
    dataset.Modality, dataset.BodyPartExamined, dataset.ViewPosition = "DX", "CHEST", film.view
    dataset.Rows, dataset.Columns = pixels.shape
    # A decimal string has at most 16 characters
    dataset.PixelSpacing = dataset.ImagerPixelSpacing = [f"{film.spacing:.10f}"] * 2
    dataset.SamplesPerPixel, dataset.PixelRepresentation = 1, 0
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit = 16, _BITS, _BITS - 1
    dataset.PhotometricInterpretation = photometric_interpretation
    dataset.PresentationLUTShape = "INVERSE" if inverse else "IDENTITY"
    dataset.WindowCenter, dataset.WindowWidth, dataset.VOILUTFunction = width / 2, width, "LINEAR_EXACT"
    dataset.PixelData = pixels.tobytes()
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian

    path = Path(folder) / f"{film.id}.dcm"
    path.parent.mkdir(parents=True, exist_ok=True)
    dataset.save_as(path, enforce_file_format=True)
    return path
