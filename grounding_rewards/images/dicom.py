"""Radiographs in DICOM files: grey images as a radiologist sees them.

Stored values pass the transformations of the standard in its order: modality LUT or rescale, VOI LUT or window (of
several the first; a LUT goes before a window), then inversion if PresentationLUTShape is INVERSE or, without that
element, if the image is MONOCHROME1. An image of more than 8 bits without VOI LUT and window is spread from its darkest
to its lightest pixel, but for outliers (`value_range`); one of 8 bits is shown as stored. Padding is black.

Only the elements that are named in this file are read: names, numbers, dates and institutions of patients never reach
the program. What is burned into the pixels stays there.

Source: DICOM PS3.3, C.7.5.1.1.2 (padding), C.8.11.3 (DX image), C.11.1 (modality LUT), C.11.2 (VOI LUT).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pydicom.dataset import FileDataset

_SIZE = ("Rows", "Columns")
_PADDING = ("PixelPaddingValue", "PixelPaddingRangeLimit")
_PIXELS = (
    *(*_SIZE, "PhotometricInterpretation", "SamplesPerPixel", "NumberOfFrames", "PlanarConfiguration"),
    *("BitsAllocated", "BitsStored", "HighBit", "PixelRepresentation", *_PADDING),
    *("ModalityLUTSequence", "RescaleSlope", "RescaleIntercept", "VOILUTSequence", "WindowCenter", "WindowWidth"),
    *("VOILUTFunction", "PresentationLUTShape", "PixelData"),
)
#: How the names of DICOM files end.
DICOM_SUFFIXES = (".dcm", ".dicom")

#: Pixels of an image at most, as Pillow has it of other images: a few megabytes can be decoded to any number of them.
_MOST_PIXELS = 178_956_970


def is_dicom(path: str | PurePath) -> bool:
    """Whether the name of a file ends as those of DICOM files do.

    Example:
        >>> is_dicom("image.DCM"), is_dicom("image.png")
        (True, False)
    """
    return PurePath(path).suffix.lower() in DICOM_SUFFIXES


def read_dicom(path: str | Path) -> np.ndarray:
    """Read a radiograph as a grey image.

    Args:
        path: a DICOM file with one grey frame.

    Returns:
        `(rows, columns)` of uint8; black is 0.

    Raises:
        ValueError: not a DICOM file, several frames, colour, more than 16 bits, a window or table that cannot be
            applied, or pixels that cannot be decoded; the file is named.
        ImportError: the extra `dicom` is not installed.

    Example:
        >>> from pydicom.data import get_testdata_file
        >>> image = read_dicom(get_testdata_file("MR_small.dcm"))
        >>> image.shape, str(image.dtype)
        ((64, 64), 'uint8')
    """
    with _naming(path):
        dataset = _read_grey_frame(path)
        stored = dataset.pixel_array.astype(np.int32)
        # A grey depends on the stored value alone: it is computed once for each value that occurs, and looked up for
        # each pixel in a table. The table begins with the lowest value, and a value's offset from that is its index.
        lowest = int(stored.min())
        offsets = stored - lowest
        values = np.flatnonzero(np.bincount(offsets.ravel())) + lowest
        greys_of_values = np.rint(_display_shades(dataset, _rescaled(dataset, values), stored) * 255)
        shape = dataset.get("PresentationLUTShape")
        is_inverse = shape == "INVERSE" if shape else dataset.PhotometricInterpretation == "MONOCHROME1"
        if is_inverse:
            greys_of_values = 255 - greys_of_values
        greys_of_values[_is_padding(dataset, values)] = 0
        greys_of_offsets = np.zeros(int(offsets.max()) + 1, dtype=np.uint8)
        greys_of_offsets[values - lowest] = greys_of_values
        return greys_of_offsets[offsets]


def is_burned_in(path: str | Path) -> bool:
    """Whether a DICOM file says that names or dates may be written into its pixels (BurnedInAnnotation is YES).

    Raises:
        ValueError: as :func:`read_dicom`.
        ImportError: the extra `dicom` is not installed.
    """
    with _naming(path):
        # `get_item` leaves the value undecoded: pydicom would print one that breaks the rules of its type, and that may
        # be a name. Its bytes may be filled up with a blank or a zero.
        element = _read(path, ("BurnedInAnnotation",), pixels=False).get_item("BurnedInAnnotation")
        value = b"" if element is None else element.value
        return (value if isinstance(value, bytes) else str(value).encode()).strip(b" \0") == b"YES"


def dicom_size(path: str | Path) -> tuple[int, int]:
    """Width and height of an image in pixels, without reading its pixels.

    Args:
        path: a DICOM file.

    Raises:
        ValueError: not a DICOM file, or one without a size; the file is named.
        ImportError: the extra `dicom` is not installed.

    Example:
        >>> from pydicom.data import get_testdata_file
        >>> dicom_size(get_testdata_file("MR_small.dcm"))
        (64, 64)
    """
    with _naming(path):
        return _size(_read(path, _SIZE, pixels=False))


def dicom_uid(path: str | Path) -> str:
    """The SOPInstanceUID of a DICOM file, without reading its pixels; empty where it has none.

    Args:
        path: a DICOM file.

    Raises:
        ValueError: not a DICOM file; the file is named.
        ImportError: the extra `dicom` is not installed.

    Example:
        >>> from pydicom.data import get_testdata_file
        >>> dicom_uid(get_testdata_file("MR_small.dcm"))
        '1.3.6.1.4.1.5962.1.1.4.1.1.20040826185059.5457'
    """
    with _naming(path):
        return str(_read(path, ("SOPInstanceUID",), pixels=False).get("SOPInstanceUID", ""))


class _RefusedError(Exception):
    """A file is refused. Arguments: what was expected, what was there instead, what to do; `_naming` names the file."""


@contextmanager
def _naming(path: str | Path) -> Iterator[None]:
    """Within this context, raise every error as a ValueError that names the file."""
    try:
        yield
    except _RefusedError as error:
        expected, got, fix = error.args
        raise ValueError(f"Expected {expected} for {path}, got {got}. {fix}.") from error
    except ImportError:
        raise
    # pydicom, highdicom and the decoders raise errors of any type for broken files.
    except Exception as error:
        got = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(
            f"Expected a DICOM file that can be read and decoded for {path}, got {got}. "
            "Check the download, or leave it out."
        ) from error


def _read(path: str | Path, elements: tuple[str, ...], *, pixels: bool) -> FileDataset:
    """The named elements of a DICOM file, all that is read of it; `pixels` says whether its pixels may be among them.

    Raises:
        _RefusedError: it has no header of DICOM, or is deflated.
        ImportError: pydicom is not installed.
    """
    try:
        from pydicom import dcmread
        from pydicom.errors import InvalidDicomError
        from pydicom.filereader import read_file_meta_info
        from pydicom.uid import DeflatedExplicitVRLittleEndian
    except ImportError as error:
        raise ImportError(
            f"Expected pydicom to read {str(path)!r}, got none. "
            "Install it with `pip install 'grounding_rewards[dicom]'`."
        ) from error
    try:
        if read_file_meta_info(path).get("TransferSyntaxUID") == DeflatedExplicitVRLittleEndian:
            # A few megabytes can be unpacked, all at once, to any number of bytes.
            raise _RefusedError("a file that is not deflated", "one that is", "Convert it, or leave it out")
        return dcmread(path, stop_before_pixels=not pixels, specific_tags=list(elements))
    except InvalidDicomError as error:
        raise _RefusedError("a DICOM file", "a file without its header", "Check the path and the download") from error


def _size(dataset: FileDataset) -> tuple[int, int]:
    """Width and height of the image in pixels."""
    rows, columns = dataset.get("Rows"), dataset.get("Columns")
    if not rows or not columns:
        raise _RefusedError("Rows and Columns", f"{rows} and {columns}", "Leave out the file if it holds no image")
    return int(columns), int(rows)


def _numbers(dataset: FileDataset, keyword: str) -> list[float]:
    """The numbers of an element, which may have one or several; an empty list where it is missing."""
    value = dataset.get(keyword)
    if value is None or value == "":
        return []
    values = [value] if isinstance(value, (int, float, str)) else value
    return list(map(float, values))


def _read_grey_frame(path: str | Path) -> FileDataset:
    """The elements of a DICOM file with one grey frame of at most 16 bits; any other file is refused."""
    dataset = _read(path, _PIXELS, pixels=True)
    frames = int(dataset.get("NumberOfFrames") or 1)
    if frames != 1:
        raise _RefusedError("one frame", f"{frames} frames", "Write each frame to a file of its own, or leave it out")
    pixels = math.prod(_size(dataset))
    if pixels > _MOST_PIXELS:
        raise _RefusedError(f"at most {_MOST_PIXELS:,} pixels", f"{pixels:,}", "Leave out the file")
    colours = dataset.get("PhotometricInterpretation")
    if colours not in ("MONOCHROME1", "MONOCHROME2") or dataset.get("SamplesPerPixel", 1) != 1:
        raise _RefusedError("a grey image, MONOCHROME1 or MONOCHROME2", f"{colours}", "Leave out the file")
    if not 1 <= (dataset.get("BitsStored") or 0) <= 16:
        raise _RefusedError("1 to 16 bits stored", f"{dataset.get('BitsStored')}", "Leave out the file")
    return dataset


def _is_padding(dataset: FileDataset, values: np.ndarray) -> np.ndarray:
    """Whether each stored value is padding, which fills the frame around the image; of the shape of `values`.

    Padding is the PixelPaddingValue, or with a PixelPaddingRangeLimit every value between the two, of which either may
    be the lower one.
    """
    padding, limit = (dataset.get(name) for name in _PADDING)
    if padding is None:
        # A limit alone means nothing.
        return np.zeros(values.shape, dtype=bool)
    ends = [padding, padding if limit is None else limit]
    if dataset.PixelRepresentation:
        # Pixels have a sign. Some devices write the 16 bits of a negative end as a number without one, above 0x7FFF.
        ends = [end - (1 << 16) if end > 0x7FFF else end for end in ends]
    return (values >= min(ends)) & (values <= max(ends))


def _rescaled(dataset: FileDataset, values: np.ndarray) -> np.ndarray:
    """What stored values measure, by the file's modality LUT, else by its slope and intercept, of the same shape."""
    if dataset.get("ModalityLUTSequence"):
        measures, _ = _look_up(dataset, dataset.ModalityLUTSequence[0], values)
        return measures
    # Of an element with several numbers the first counts; without the element nothing is rescaled.
    slopes, intercepts = _numbers(dataset, "RescaleSlope") or [1.0], _numbers(dataset, "RescaleIntercept") or [0.0]
    return values * slopes[0] + intercepts[0]


def _display_shades(dataset: FileDataset, values: np.ndarray, stored: np.ndarray) -> np.ndarray:
    """Shades of grey, 0 to 1, in which rescaled values are shown, both `(n,)`; `stored` are all pixels of the image.

    The file's VOI LUT (values of interest) makes them, else its window. A file without either has its values spread
    between two ends: up to 8 bits those of all that can be stored, beyond that those of the values in the image.
    """
    from highdicom.pixels import apply_voi_window

    if dataset.get("VOILUTSequence"):
        entries, white_entry = _look_up(dataset, dataset.VOILUTSequence[0], np.rint(values).astype(np.int64))
        return entries / white_entry
    centers, widths = _numbers(dataset, "WindowCenter"), _numbers(dataset, "WindowWidth")
    if centers and widths:
        function = str(dataset.get("VOILUTFunction") or "LINEAR")
        # LINEAR divides by the width - 1, the other functions by the width.
        if widths[0] <= (1 if function == "LINEAR" else 0):
            raise _RefusedError(f"a WindowWidth that {function} can use", f"{widths[0]:g}", "Correct the header")
        return apply_voi_window(values, centers[0], widths[0], function)
    if dataset.BitsStored <= 8:
        # Such an image is in shades already: black and white are the ends of what its bits can store, from half of it
        # below 0 where pixels have a sign.
        lowest = -(1 << (dataset.BitsStored - 1)) if dataset.PixelRepresentation else 0
        ends = _rescaled(dataset, np.array([lowest, lowest + (1 << dataset.BitsStored) - 1]))
    else:
        # A detector uses a part of the values that it can store.
        unpadded = stored[~_is_padding(dataset, stored)]
        ends = np.array(value_range(_rescaled(dataset, unpadded)) if unpadded.size else (0.0, 0.0))
    # By size, as a negative slope turns the ends round.
    black, white = ends.min(), ends.max()
    # All is padding, or all pixels are alike: nothing can be spread.
    if black == white:
        return np.zeros(len(values))
    return np.clip((values - black) / (white - black), 0.0, 1.0)


# Where at least this share of the pixels is below the largest value, those that have it are a marker.
_UNSATURATED = 0.9


def value_range(values: np.ndarray) -> tuple[float, float]:
    """The values that become black and white where no window says which: about the smallest and the largest.

    A few pixels far out, such as those of a saturated marker, would take the contrast from all others. So the range
    goes beyond the usual values by at most half of their spread, and whatever lies further out is black or white. Usual
    are all values but the lowest and the highest hundredth; pixels of the largest value are not counted where they are
    at most a tenth.

    Args:
        values: any numbers, all finite and at least one.

    Example:
        >>> value_range(np.arange(1000)), value_range(np.append(np.arange(1000), [65535] * 50))[1] < 1600
        ((0.0, 999.0), True)
    """
    low, high = float(values.min()), float(values.max())
    # For the usual values, a sample of about a million pixels is enough.
    sample = values.ravel()[:: max(1, values.size // 2**20)]
    unsaturated = sample[sample < high]
    # Left out where they are few: then they are a saturated marker.
    if unsaturated.size >= _UNSATURATED * sample.size:
        sample = unsaturated
    usual_low, usual_high = np.percentile(sample, (1, 99)).tolist()
    reach = (usual_high - usual_low) / 2
    if not reach:
        # Nearly all pixels have one value: an object on empty ground, which is all that there is to see.
        return low, high
    return max(low, usual_low - reach), min(high, usual_high + reach)


def _look_up(dataset: FileDataset, item: Any, values: np.ndarray) -> tuple[np.ndarray, int]:
    """Replace integers by what a look-up table (LUT) of the file has for them.

    Args:
        dataset: the file.
        item: its DICOM item with the table.
        values: what is looked up.

    Returns:
        The entries of the table, of the shape of `values`, and the largest entry that it can have.
    """
    from highdicom.pixels import apply_lut

    # How many entries there are, the value of the first one, and the bits of each.
    count, first_value, bits = (int(number) for number in item.LUTDescriptor)
    # The count is 16 bits without a sign: 65,536, which they do not hold, is written as 0. Where pixels have a sign,
    # pydicom may read it with one, as a negative number.
    count = count % (1 << 16) or 1 << 16
    data = item.LUTData
    if isinstance(data, bytes):
        # An entry has two bytes; entries of 8 bits may have one, and a last byte that makes their number even.
        is_packed = bits <= 8 and len(data) <= count + 1
        byte_order = "<" if dataset.file_meta.TransferSyntaxUID.is_little_endian else ">"
        data = np.frombuffer(data, dtype=np.uint8 if is_packed else f"{byte_order}u2")
    entries = np.asarray(data, dtype=np.int64)[:count]
    # The first value too is read without a sign. Above 0x7FFF a negative one is meant if some values are negative, or
    # if otherwise all of them would lie below the table.
    if first_value > 0x7FFF and (values.min() < 0 or values.max() < first_value):
        first_value -= 1 << 16
    return apply_lut(values, entries, first_value), max((1 << bits) - 1, int(entries.max()))
