"""Drawn radiographs as DICOM files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from grounding_rewards.common.legal import check_word
from grounding_rewards.synthetic.radiographs import Radiograph

_DIGITAL_XRAY_FOR_PRESENTATION = "1.2.840.10008.5.1.4.1.1.1.1"
_BITS = 12


def write_dicom(image: Radiograph, folder: str | Path, *, photometric_interpretation: str = "MONOCHROME2") -> Path:
    """Write an image as a radiograph of 12 bits with window and pixel spacing; `read_dicom` restores its pixels.

    Args:
        image: From `draw_radiograph`.
        folder: Created if it does not exist; the file is named by the id of the image.
        photometric_interpretation: `MONOCHROME1` stores the image inverted.

    Returns:
        The path of the file.

    Raises:
        ValueError: Another photometric interpretation.
        ImportError: The extra `dicom` is not installed.

    >>> import tempfile
    >>> from grounding_rewards.synthetic import draw_radiograph
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_dicom(draw_radiograph(3, "pa-256"), folder).name
    'pa-256-0-3.dcm'
    """
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, generate_uid

    check_word("photometric_interpretation", photometric_interpretation, ("MONOCHROME1", "MONOCHROME2"))
    pixels = np.asarray(image.image).astype("<u2") << (_BITS - 8)
    width = 255 << (_BITS - 8)
    inverse = photometric_interpretation == "MONOCHROME1"
    if inverse:
        pixels = width - pixels

    dataset = Dataset()
    dataset.SOPClassUID = _DIGITAL_XRAY_FOR_PRESENTATION
    dataset.SOPInstanceUID = generate_uid(entropy_srcs=[image.id, "instance"])
    dataset.StudyInstanceUID = generate_uid(entropy_srcs=[image.id, "study"])
    dataset.SeriesInstanceUID = generate_uid(entropy_srcs=[image.id, "series"])
    dataset.PatientName, dataset.PatientID = "", ""
    dataset.Modality, dataset.BodyPartExamined, dataset.ViewPosition = "DX", "CHEST", image.view
    dataset.Rows, dataset.Columns = pixels.shape
    # A decimal string has at most 16 characters
    dataset.PixelSpacing = dataset.ImagerPixelSpacing = [f"{image.spacing:.10f}"] * 2
    dataset.SamplesPerPixel, dataset.PixelRepresentation = 1, 0
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit = 16, _BITS, _BITS - 1
    dataset.PhotometricInterpretation = photometric_interpretation
    dataset.PresentationLUTShape = "INVERSE" if inverse else "IDENTITY"
    dataset.WindowCenter, dataset.WindowWidth, dataset.VOILUTFunction = width / 2, width, "LINEAR_EXACT"
    dataset.PixelData = pixels.tobytes()
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian

    path = Path(folder) / f"{image.id}.dcm"
    path.parent.mkdir(parents=True, exist_ok=True)
    dataset.save_as(path, enforce_file_format=True)
    return path
