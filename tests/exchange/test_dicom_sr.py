"""Reports are written and read back by pydicom and highdicom; they have the answer, and say that nobody verified it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grounding_rewards.boxes import valid_boxes
from grounding_rewards.exchange.dicom_sr import NOTICE, SCHEME, drawable_boxes, findings_report, write_dicom_sr
from grounding_rewards.metrics.prediction import Prediction
from tests.conftest import box_lists, dicom_header, save_dicom
from tests.tables import table

pydicom = pytest.importorskip("pydicom", reason="needs the extra dicom")
pytest.importorskip("highdicom", reason="needs the extra dicom")


@pytest.fixture
def dicom_image(tmp_path):
    """Write an image of 200 columns and 100 rows, of a patient whose name is not ASCII."""
    patient = {"PatientName": "Müller^Jörg", "PatientID": "7", "StudyDate": "20200229"}

    def write(name="images/two.dcm", **changes):
        elements = {"SpecificCharacterSet": "ISO_IR 100", **patient, **changes}
        return save_dicom(tmp_path / name, dicom_header(np.zeros((100, 200), np.uint8), 8, **elements))

    return write


def content(report):
    from highdicom.sr import MeasurementReport

    return MeasurementReport.from_sequence(report.content)


def groups(report):
    return content(report).get_planar_roi_measurement_groups()


def test_a_file_read_back_has_the_answer(images, dicom_image, tmp_path):
    from highdicom.sr import srread

    source = pydicom.dcmread(dicom_image("images/one.dcm", Columns=400, Rows=300))
    assert write_dicom_sr(images[:1], tmp_path / "out", model="runs/mine", dicom=tmp_path / "images") == (1, {})
    (path,) = (tmp_path / "out").iterdir()
    assert path.name == "000001_one.dcm"
    report = srread(path)
    assert (report.PatientName, report.PatientID, report.StudyDate) == ("Müller^Jörg", "7", "20200229")
    assert report.StudyInstanceUID == source.StudyInstanceUID
    assert report.SeriesInstanceUID != source.SeriesInstanceUID
    assert report.get_evidence() == [(*report.get_evidence()[0][:2], source.SOPInstanceUID, source.SOPClassUID)]
    first, second = groups(report)
    # x1, y1, … are columns and rows: a closed rectangle
    assert first.roi.value.tolist() == [[12, 18], [115, 18], [115, 225], [12, 225], [12, 18]]
    assert first.roi.graphic_type.value == "POLYLINE"
    assert second.roi.value[[0, 2]].tolist() == [[0, 0], [50, 50]]
    found = [(group.finding_type.meaning, group.finding_type.scheme_designator) for group in (first, second)]
    assert found == [("mass", SCHEME), ("nodule", SCHEME)]
    assert [group.get_measurements()[0].value for group in (first, second)] == [0.9, 0.25]
    # what the region was drawn on
    (image,) = first.roi.ContentSequence
    assert image.ReferencedSOPSequence[0].ReferencedSOPInstanceUID == source.SOPInstanceUID


def test_it_is_marked_as_research_of_a_device(images, dicom_image):
    from pydicom.sr.codedict import codes

    report = findings_report(images[1], pydicom.dcmread(dicom_image()), model="mine")
    assert report.SOPClassUID == pydicom.uid.ComprehensiveSRStorage
    assert report.ContentTemplateSequence[0].TemplateIdentifier == "1500"
    assert (report.VerificationFlag, report.PreliminaryFlag) == ("UNVERIFIED", "PRELIMINARY")
    assert report.ContentQualification == "RESEARCH"
    assert report.SeriesDescription == "RESEARCH ONLY, unverified boxes: mine"
    assert "VerifyingObserverSequence" not in report
    (observer,) = content(report).get_observer_contexts()
    assert observer.observer_type == codes.DCM.Device
    assert observer.observer_identifying_attributes.name == "mine"
    comments = [item for item in report.content[0].ContentSequence if item.name == codes.DCM.Comment]
    assert [item.value for item in comments] == [NOTICE]


def test_boxes_are_clipped_to_the_image_and_invalid_ones_left_out(images, dicom_image):
    (group,) = groups(findings_report(images[1], pydicom.dcmread(dicom_image()), model="mine"))
    # 60 of its 110 columns are beside the image
    assert group.roi.value[[0, 2]].tolist() == [[150, 50], [200, 90]]
    assert group.finding_type.meaning == "unlabelled"
    assert len(group.get_measurements()) == 0


def test_an_image_at_another_scale_is_scaled(images, dicom_image):
    twice = pydicom.dcmread(dicom_image(Columns=401, Rows=199))
    (group,) = groups(findings_report(images[1], twice, model="mine"))
    np.testing.assert_allclose(group.roi.value[2], [401, 90 * 1.99], rtol=1e-6)
    # Both sides were rounded down.
    copy = Prediction("copy", 148, 269, pred=[[0, 0, 148, 269]])
    (group,) = groups(findings_report(copy, pydicom.dcmread(dicom_image(Columns=1561, Rows=2825)), model="mine"))
    np.testing.assert_allclose(group.roi.value[2], [1561, 2825], rtol=1e-6)
    with pytest.raises(ValueError, match="in the shape of 200 x 100 pixels, got 200 x 200"):
        findings_report(images[1], pydicom.dcmread(dicom_image(Rows=200)), model="mine")


def test_a_stated_negative_is_a_finding_of_the_whole_image(images, dicom_image, tmp_path):
    source = pydicom.dcmread(dicom_image(Columns=100, Rows=100))
    report = findings_report(images[2], source, model="mine")
    assert groups(report) == []
    (group,) = content(report).get_image_measurement_groups()
    assert group.finding_type.meaning == "no finding"
    assert group.source_images[0].referenced_sop_instance_uid == source.SOPInstanceUID
    with pytest.raises(ValueError, match=r"image 'four', got neither.*unparseable"):
        findings_report(images[3], source, model="mine")
    # a no-finding statement beside boxes that cannot be drawn is no no-finding statement
    odd = Prediction("odd", 100, 100, pred=[[9, 9, 5, 5]])
    with pytest.raises(ValueError, match="got neither"):
        findings_report(odd, source, model="mine")


def test_images_without_a_file_or_an_answer_are_named(images, dicom_image, tmp_path):
    dicom_image("images/two.dcm")
    dicom_image("images/sub/four.dicom", Columns=100, Rows=100)
    written = write_dicom_sr(images, tmp_path / "out", model="mine", dicom=tmp_path / "images")
    assert (written[0], list(written[1].values())) == (1, [["one", "three"], ["four"]])
    with pytest.raises(ValueError, match="called after the images' ids or images, got none for 1 images"):
        write_dicom_sr(images[:1], tmp_path / "none", model="mine", dicom=tmp_path / "images")
    dicom_image("images/again/two.dcm")
    with pytest.raises(ValueError, match=r"Expected one image of the name 'two' below"):
        write_dicom_sr(images, tmp_path / "none", model="mine", dicom=tmp_path / "images")


def test_a_file_that_is_no_dicom_is_named(images, tmp_path):
    (tmp_path / "two.dcm").write_text("no")
    with pytest.raises(ValueError, match=r"Expected a DICOM file .*two.dcm"):
        write_dicom_sr(images, tmp_path / "out", model="mine", dicom=tmp_path)
    itself = Prediction("two", 9, 9, status="empty", image=str(tmp_path / "two.dcm"))
    with pytest.raises(ValueError, match=r"Expected a DICOM file in .*two.dcm"):
        write_dicom_sr([itself], tmp_path / "out", model="mine")


@pytest.mark.filterwarnings("ignore:Invalid value for VR CS")
def test_an_image_that_cannot_be_referred_to_is_refused(images, dicom_image):
    source = pydicom.dcmread(dicom_image())
    # What the image lacks is added to a copy.
    del source.StudyDate
    findings_report(images[1], source, model="mine")
    assert "StudyDate" not in source
    del source.SeriesInstanceUID
    with pytest.raises(ValueError, match="'two', got one without SeriesInstanceUID"):
        findings_report(images[1], source, model="mine")
    with pytest.raises(ValueError, match="can be copied for image 'two', got 'male' is not a valid PatientSex"):
        findings_report(images[1], pydicom.dcmread(dicom_image(PatientSex="male")), model="mine")


@pytest.mark.parametrize(
    ("label", "meaning"),
    [
        *table("exchange/tables", "any_label_fits"),
        ("x" * 200, "x" * 64),  # a meaning has at most 64 characters
    ],
)
def test_any_label_fits(label, meaning, dicom_image, tmp_path):
    from highdicom.sr import srread

    image = Prediction("two", 200, 100, pred=[[0, 0, 5, 5]], pred_labels=[label])
    write_dicom_sr([image], tmp_path / "out", model=f"m\\{label}", dicom=dicom_image().parent)
    (path,) = (tmp_path / "out").iterdir()
    (group,) = groups(srread(path))
    assert group.finding_type.meaning == meaning


@given(box_lists(), st.integers(1, 12), st.integers(1, 12))
def test_what_is_drawn_is_valid_inside_and_part_of_its_box(boxes, width, height):
    given_boxes = np.array([*boxes, [np.nan, 0, 1, 1], [0, 0, np.inf, 1], [-1, -1, 99, 99]])
    drawn, which = drawable_boxes(given_boxes, width, height)
    assert valid_boxes(drawn).all()
    assert (drawn >= 0).all()
    assert (drawn <= [width, height, width, height]).all()
    source = given_boxes[which]
    assert (drawn[:, :2] >= source[:, :2]).all()
    assert (drawn[:, 2:] <= source[:, 2:]).all()
    # the last one covers the image, and only finite ones are drawn
    assert drawn[-1].tolist() == [0, 0, width, height]
    assert not {len(boxes), len(boxes) + 1} & set(which.tolist())
