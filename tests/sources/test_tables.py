"""Tables, conversions and sizes: what every source relies on."""

import gzip

import pytest

from grounding_rewards.sources.tables import RowPlace, find_file, image_finder, read_rows, read_sizes
from tests.tables import table

TABLE = b"image_id,rad_ID, x\na,R1,1\nb,R2, 2\n"
CELLS = [(2, ("1", "a", "R1")), (3, ("2", "b", "R2"))]


@pytest.fixture
def csv_file(write):
    return lambda content, name="table.csv": write({name: content}) / name


@pytest.mark.parametrize(
    "content",
    [
        TABLE,
        b"\xef\xbb\xbf" + TABLE,  # byte order mark, as in GRAZPEDWRI-DX
        TABLE.replace(b"\n", b"\r\n"),  # saved by Excel
        TABLE.replace(b"\n", b"\r"),  # and by Excel for the Macintosh
        TABLE.replace(b"\n", b"\n\n"),  # blank lines; the numbers of lines are tested below
        TABLE.removesuffix(b"\n"),  # no end of line at the end
        TABLE.replace(b"\na,R1,1\n", b"\na,R1,1,,\n"),  # empty cells beyond the header
        TABLE.replace(b" x\n", b" x,,\n"),  # in the header alone
        b'"image_id","rad_ID","x"\n"a","R1","1"\n"b","R2","2"\n',  # quoted
        b"x,rad_ID,image_id,more\n1,R1,a,\n2,R2,b,\n",  # another order, more columns
    ],
)
def test_dialects_of_one_table(csv_file, content):
    rows = [cells for _, cells in read_rows(csv_file(content), ("x", "image_id"), ("rad_id",))]
    assert rows == [cells for _, cells in CELLS]


def test_a_packed_table_is_unpacked(csv_file):
    path = csv_file(gzip.compress(TABLE), "t.csv.gz")
    assert [(place.line, cells) for place, cells in read_rows(path, ("x", "image_id", "rad_id"))] == CELLS
    # A source that asks for the table as it was published finds it packed too, the first of several names.
    assert find_file(path.parent, "s.csv", "t.csv", "t.csv.gz") == path


def test_lines_are_counted_as_an_editor_does(csv_file):
    # A quoted cell may run over lines, blank lines count, and Unicode's separators are part of a line.
    path = csv_file('id,text\n\na,"one\u2028\u0085\ntwo"\nb,three\n')
    rows = [(RowPlace(path, 4, "a"), ("a", "one\u2028\u0085\ntwo")), (RowPlace(path, 5, "b"), ("b", "three"))]
    assert read_rows(path, ("id", "text")) == rows


def test_columns_that_are_missing(csv_file):
    path = csv_file(TABLE)
    assert read_rows(path, ("image_id",), ("split",))[0] == (RowPlace(path, 2, "a"), ("a", ""))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *table("sources/tables", "a_broken_table_is_named"),
        (b"id,x\na,1\nb,\xff\n", r"in line 3 of .*table\.csv, got the byte 0xff .* no UTF-8"),
        ("id,x\na,1\n".encode("utf-16"), "in line 1 of .*UTF-8"),
        ('id,x\na,"' + "1" * 200_000, "Expected CSV in .* field larger than field limit .* in line 2"),  # no end
    ],
)
def test_a_broken_table_is_named(csv_file, content, message):
    with pytest.raises(ValueError, match=message):
        read_rows(csv_file(content), ("id", "x"))


@pytest.mark.parametrize("content", table("sources/tables", "sizes_by_name"))
def test_sizes_by_name(csv_file, content):
    assert read_sizes(csv_file(content), "image_id") == {"a": (30, 20)}


@pytest.mark.parametrize(("content", "message"), table("sources/tables", "sizes_that_cannot_be_read"))
def test_sizes_that_cannot_be_read(csv_file, content, message):
    with pytest.raises(ValueError, match=message):
        read_sizes(csv_file(content), "image_id")


def test_images_are_found_by_their_ids(tmp_path):
    for name in ("train/a.dicom", "copies/a.png", "copies/b.PNG", "moved/c.dcm", "copies/c.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    find = image_finder(tmp_path)
    found = [find(image, f"train/{image}.dicom") for image in "abcd"]
    # A DICOM file before a copy; what is nowhere, where it should be
    assert found == ["train/a.dicom", "copies/b.PNG", "moved/c.dcm", "train/d.dicom"]
    # By a name with its ending too, of which only the name counts
    assert (find("b.PNG"), find("other/b.PNG"), find("b.jpg")) == ("copies/b.PNG", "copies/b.PNG", "")
    (tmp_path / "copies" / "b.jpg").touch()
    # The published file is not in doubt, whatever else lies there
    assert find("a", "train/a.dicom") == "train/a.dicom"
    # Of files that are called alike, the one in the folder of the name
    assert (find("moved/c", "x/moved/c"), find("copies/c")) == ("moved/c.dcm", "copies/c.jpg")
    with pytest.raises(ValueError, match=r"one image .* got copies/b\.(PNG|jpg) and copies/b\.(PNG|jpg)"):
        image_finder(tmp_path)("b", "train/b.dicom")
