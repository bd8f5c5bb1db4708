"""DICOM images become the grey values that the standard's formulas give, and nothing else of a header gets through."""

import math
import warnings

import numpy as np
import pytest

pydicom = pytest.importorskip("pydicom", reason="needs the dicom extra")
pytest.importorskip("highdicom", reason="needs the dicom extra")

from pydicom.dataset import Dataset, FileMetaDataset  # noqa: E402
from pydicom.uid import (  # noqa: E402
    DeflatedExplicitVRLittleEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    RLELossless,
)

from grounding_rewards.images.dicom import dicom_size, read_dicom  # noqa: E402
from tests.conftest import dicom_header, save_dicom  # noqa: E402
from tests.tables import table  # noqa: E402


@pytest.fixture
def image(tmp_path):
    return lambda stored, bits, **elements: save_dicom(tmp_path / "image.dcm", dicom_header(stored, bits, **elements))


def lut(entries, first, bits):
    item = Dataset()
    item.add_new("LUTDescriptor", "US", [len(entries) % 65536, first % 65536, bits])
    item.add_new("LUTData", "US", entries)
    return [item]


def window(value, center, width, function):
    """PS3.3 C.11.2.1.2 and C.11.2.1.3, for an output from 0 to 1."""
    if function == "SIGMOID":
        return 1 / (1 + math.exp(-4 * (value - center) / width))
    if function == "LINEAR":
        center, width = center - 0.5, width - 1
    if value <= center - width / 2:
        return 0.0
    if value > center + width / 2:
        return 1.0
    return (value - center) / width + 0.5


def expected(stored, shade, top=255):
    """Every pixel on its own: shade gives 0 to 1 for a stored value."""
    return np.array([[round(shade(int(value)) * top) for value in row] for row in stored])


RAMP_12 = np.arange(0, 4096, 16, dtype=np.uint16).reshape(16, 16)
RAMP_16 = np.arange(0, 65536, 256, dtype=np.uint16).reshape(16, 16)


class TestTransformations:
    def test_monochrome2_of_16_bits_with_rescale_and_voi_lut(self, image):
        entries = [int(4095 * math.sqrt(n / 999)) for n in range(1000)]
        path = image(RAMP_16, 16, RescaleSlope="0.0625", RescaleIntercept="-1024", VOILUTSequence=lut(entries, 200, 12))

        def shade(value):
            entry = round(value * 0.0625 - 1024) - 200
            return entries[min(max(entry, 0), 999)] / 4095

        pixels = read_dicom(path)
        np.testing.assert_array_equal(pixels, expected(RAMP_16, shade))
        assert len(np.unique(pixels)) > 50

    @pytest.mark.parametrize("function", ["LINEAR", "LINEAR_EXACT", "SIGMOID"])
    def test_window_functions(self, image, function):
        path = image(RAMP_12, 12, WindowCenter=1800.5, WindowWidth=900, VOILUTFunction=function)
        shades = expected(RAMP_12, lambda value: window(value, 1800.5, 900, function))
        np.testing.assert_array_equal(read_dicom(path), shades)

    def test_the_first_window_counts_and_a_voi_lut_precedes_it(self, image):
        several = read_dicom(image(RAMP_12, 12, WindowCenter=[1000, 3000], WindowWidth=[500, 800]))
        first = read_dicom(image(RAMP_12, 12, WindowCenter=1000, WindowWidth=500))
        np.testing.assert_array_equal(several, first)
        path = image(RAMP_12, 12, VOILUTSequence=lut([0, 255], 2048, 8), WindowCenter=100, WindowWidth=50)
        np.testing.assert_array_equal(read_dicom(path), np.where(RAMP_12 > 2048, 255, 0))

    def test_modality_lut_then_voi_lut_then_inversion(self, image):
        # highdicom 0.28 leaves out scaling and inversion here: hence by hand
        modality, voi = [1000 - n for n in range(4096)], [n * n // 1000 for n in range(1001)]
        modality = [max(value, 0) for value in modality]
        tables = {"ModalityLUTSequence": lut(modality, 0, 16), "VOILUTSequence": lut(voi, 0, 10)}
        path = image(RAMP_12, 12, PhotometricInterpretation="MONOCHROME1", **tables)
        shades = expected(RAMP_12, lambda value: voi[modality[value]] / 1023)
        np.testing.assert_array_equal(read_dicom(path), 255 - shades)

    @pytest.mark.filterwarnings("ignore")
    def test_luts_of_65536_entries_and_of_packed_bytes(self, image):
        # It is too long for the explicit length of its value representation, and is written as UN
        identity = image(RAMP_16, 16, VOILUTSequence=lut(list(range(65536)), 0, 16))
        np.testing.assert_array_equal(read_dicom(identity), expected(RAMP_16, lambda value: value / 65535))
        item = Dataset()
        item.add_new("LUTDescriptor", "US", [256, 0, 8])
        item.add_new("LUTData", "OW", bytes(range(255, -1, -1)))
        stored = np.arange(256, dtype=np.uint8).reshape(16, 16)
        np.testing.assert_array_equal(read_dicom(image(stored, 8, VOILUTSequence=[item])), 255 - stored)
        packed = (np.arange(65536) // 256).astype(np.uint8)
        item.add_new("LUTDescriptor", "US", [0, 0, 8])
        item.add_new("LUTData", "OW", packed.tobytes())
        path = image(RAMP_16, 16, VOILUTSequence=[item])
        np.testing.assert_array_equal(read_dicom(path), packed[RAMP_16])

    def test_a_lut_that_starts_below_zero(self, image):
        # -100 is written as 65436
        stored = np.arange(-128, 128, dtype=np.int16).reshape(16, 16)
        path = image(stored, 12, VOILUTSequence=lut([0, 85, 170, 255], -100, 8))
        np.testing.assert_array_equal(read_dicom(path), 85 * np.clip(stored + 100, 0, 3))
        # As well where no pixel is negative.
        stored = np.arange(256, dtype=np.int16).reshape(16, 16)
        path = image(stored, 12, VOILUTSequence=lut(list(range(256)), -100, 8))
        np.testing.assert_array_equal(read_dicom(path), np.minimum(stored + 100, 255))

    @pytest.mark.filterwarnings("ignore:Invalid value")
    def test_a_long_lut_of_an_image_with_a_sign(self, tmp_path):
        # 40,000 are more than 16 bits with a sign hold.
        stored = np.linspace(0, 30000, 64).astype(np.int16).reshape(8, 8)
        item = Dataset()
        item.add_new("LUTDescriptor", "US", [40000, 0, 16])
        item.add_new("LUTData", "OW", np.arange(40000, dtype="<u2").tobytes())
        header = dicom_header(stored, 16, VOILUTSequence=[item])
        pixels = read_dicom(save_dicom(tmp_path / "image.dcm", header, ImplicitVRLittleEndian))
        np.testing.assert_array_equal(pixels, expected(stored, lambda value: value / 65535))

    @pytest.mark.parametrize(
        ("dtype", "bits"),
        [(np.uint8, 8), (np.uint16, 12), (np.uint16, 14), (np.uint16, 16), (np.int16, 12), (np.int16, 16)],
    )
    def test_without_window_the_image_is_spread(self, image, dtype, bits):
        low = -(1 << (bits - 1)) if np.dtype(dtype).kind == "i" else 0
        stored = np.linspace(low + 3, low + (1 << bits) - 4, 64).astype(dtype).reshape(8, 8)
        if bits == 8:
            shades = stored
        else:
            ends = int(stored.min()), int(stored.max())
            shades = expected(stored, lambda value: (value - ends[0]) / (ends[1] - ends[0]))
        np.testing.assert_array_equal(read_dicom(image(stored, bits)), shades)

    @pytest.mark.parametrize("high", [4, 50])  # 0.4 % and 5 % of the pixels
    def test_a_saturated_marker_leaves_the_contrast(self, image, high):
        marked = np.tile(np.arange(1000, 2000, dtype=np.uint16), (100, 1))
        marked[:high, :100] = 4095
        shown = read_dicom(image(marked, 12))
        assert shown[50, 999] > 150
        assert (shown[:high, :100] == 255).all()

    def test_a_falling_rescale_turns_the_image_over(self, image):
        upright = read_dicom(image(RAMP_12, 12))
        falling = read_dicom(image(RAMP_12, 12, RescaleSlope=-1, RescaleIntercept=4095))
        np.testing.assert_array_equal(falling, 255 - upright.astype(int))

    @pytest.mark.filterwarnings("ignore")
    def test_bits_above_those_stored_are_no_part_of_the_image(self, image):
        overlaid = read_dicom(image(RAMP_12 | 0x8000, 12, WindowCenter=2048, WindowWidth=4096))
        plain = read_dicom(image(RAMP_12, 12, WindowCenter=2048, WindowWidth=4096))
        np.testing.assert_array_equal(overlaid, plain)

    @pytest.mark.parametrize("photometric", ["MONOCHROME1", "MONOCHROME2"])
    def test_padding_is_black_and_takes_no_contrast(self, image, photometric):
        stored = np.linspace(1000, 2000, 64).astype(np.uint16).reshape(8, 8)
        stored[0, :4] = (0, 60, 60, 100)
        path = image(stored, 12, PixelPaddingValue=0, PixelPaddingRangeLimit=100, PhotometricInterpretation=photometric)
        pixels = read_dicom(path)
        assert not pixels[0, :4].any()
        assert (pixels.ravel()[4:].min(), pixels.max()) == (0, 255)

    @pytest.mark.parametrize("limit", [{}, {"PixelPaddingRangeLimit": None}])
    def test_padding_of_an_image_with_a_sign(self, tmp_path, limit):
        stored = np.linspace(1000, 2000, 64).astype(np.int16).reshape(8, 8)
        stored[0, :4] = -2000
        header = dicom_header(stored, 16, PhotometricInterpretation="MONOCHROME1", **limit)
        # As scanners write it, without a sign.
        header.add_new("PixelPaddingValue", "US", 63536)
        pixels = read_dicom(save_dicom(tmp_path / "image.dcm", header))
        assert not pixels[0, :4].any()
        assert (pixels.ravel()[4:].min(), pixels.max()) == (0, 255)

    def test_an_image_of_one_value_is_black(self, image):
        assert not read_dicom(image(np.full((4, 4), 700, np.uint16), 12)).any()

    @pytest.mark.parametrize(
        ("photometric", "shape", "inverted"), table("images/tables", "who_decides_about_inversion")
    )
    def test_who_decides_about_inversion(self, image, photometric, shape, inverted):
        elements = {} if shape is None else {"PresentationLUTShape": shape}
        stored = np.arange(256, dtype=np.uint8).reshape(16, 16)
        pixels = read_dicom(image(stored, 8, PhotometricInterpretation=photometric, **elements))
        np.testing.assert_array_equal(pixels, 255 - stored if inverted else stored)

    @pytest.mark.parametrize("syntax", [ImplicitVRLittleEndian, RLELossless])
    def test_other_transfer_syntaxes_give_the_same_pixels(self, tmp_path, syntax):
        elements = {"WindowCenter": 2048, "WindowWidth": 3000, "VOILUTSequence": lut([0, 9, 4095], 2000, 12)}
        plain = save_dicom(tmp_path / "plain.dcm", dicom_header(RAMP_12, 12, **elements))
        dataset = dicom_header(RAMP_12, 12, **elements)
        if syntax.is_compressed:
            dataset.file_meta = FileMetaDataset()
            dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
            dataset.compress(syntax)
        other = save_dicom(tmp_path / "other.dcm", dataset, syntax)
        np.testing.assert_array_equal(read_dicom(other), read_dicom(plain))

    def test_a_real_image_agrees_with_highdicom(self):
        import highdicom
        from pydicom.data import get_testdata_file

        # One with window and rescale slope of 1, where highdicom's composed transformation is exact
        path = get_testdata_file("examples_overlay.dcm")
        shades = highdicom.imread(path).get_frame(1, apply_voi_transform=True)
        np.testing.assert_allclose(read_dicom(path), 255 * shades, atol=0.51)


class TestRefusals:
    @pytest.mark.parametrize(("elements", "message"), table("images/tables", "the_file_is_named"))
    def test_the_file_is_named(self, image, elements, message):
        path = image(RAMP_12, 12, **elements)
        with pytest.raises(ValueError, match=message) as refusal:
            read_dicom(path)
        assert str(path) in str(refusal.value)
        assert str(refusal.value).startswith("Expected ")

    def test_a_deflated_file_that_would_fill_the_memory(self, tmp_path):
        path = save_dicom(tmp_path / "image.dcm", dicom_header(RAMP_12, 12), DeflatedExplicitVRLittleEndian)
        for read in (read_dicom, dicom_size):
            with pytest.raises(ValueError, match=r"Expected a file that is not deflated for .*image\.dcm"):
                read(path)

    def test_what_is_no_image(self, tmp_path):
        (tmp_path / "image.dcm").write_bytes(b"\x89PNG" * 100)
        with pytest.raises(ValueError, match=r"Expected a DICOM file for .*image\.dcm"):
            dicom_size(tmp_path / "image.dcm")
        with pytest.raises(ValueError, match=r"missing\.dcm, got FileNotFoundError"):
            dicom_size(tmp_path / "missing.dcm")


def test_the_size_is_read_without_the_pixels(tmp_path):
    path = save_dicom(tmp_path / "image.dcm", dicom_header(RAMP_12[:8], 12))
    path.write_bytes(path.read_bytes()[:-200])
    assert dicom_size(path) == (16, 8)


SECRETS = {
    **{"PatientName": "Kowalczyk^Zuzanna", "PatientID": "PID-7431905", "PatientBirthDate": "19510823"},
    **{"InstitutionName": "Hospital of Saint Xenia", "ReferringPhysicianName": "Oyelaran^Ade", "StudyDate": "20190214"},
    **{"AccessionNumber": "ACC99812", "StudyDescription": "Follow-up of Kowalczyk", "StationName": "XENIA-DR2"},
    **{"StudyInstanceUID": "1.2.826.0.1.3680043.8.498.74319051", "ImageComments": "Zuzanna K., born 1951"},
    # Typed by hand where a code belongs
    **{"BodyPartExamined": "Thorax of Zuzanna", "ViewPosition": "Kowalczyk^Zuzanna", "Laterality": "see Oyelaran"},
}


def test_nothing_that_identifies_gets_through(tmp_path, capfd, caplog, recwarn):
    """Nothing of a header but the list is returned, written, printed, logged or in an error."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset = dicom_header(RAMP_12, 12)
        for keyword, value in SECRETS.items():
            setattr(dataset, keyword, value)
        other = Dataset()
        other.PatientID = SECRETS["PatientID"]
        dataset.OtherPatientIDsSequence = [other]
        dataset.private_block(0x0011, "Kowalczyk GmbH", create=True).add_new(1, "LO", SECRETS["PatientName"])
        (tmp_path / "in").mkdir()
        path = save_dicom(tmp_path / "in" / "image.dcm", dataset)
        dataset.Rows = 900
        broken = save_dicom(tmp_path / "broken.dcm", dataset)
    secrets = {part for value in SECRETS.values() for part in value.replace("^", " ").split() if len(part) > 3}
    assert all(secret.encode() in path.read_bytes() for secret in secrets)
    capfd.readouterr()
    caplog.clear()
    recwarn.clear()

    image = read_dicom(path)
    Image.fromarray(image).save(tmp_path / "image.png")
    with pytest.raises(ValueError, match="broken") as refusal:
        read_dicom(broken)
    causes = [refusal.value, refusal.value.__cause__, refusal.value.__context__]
    outputs = [repr(image), repr(dicom_size(path)), (tmp_path / "image.png").read_bytes().decode("latin-1")]
    outputs += [*map(repr, causes), *capfd.readouterr(), caplog.text, *(str(one.message) for one in recwarn)]
    for secret in secrets:
        assert not any(secret in output for output in outputs), secret
