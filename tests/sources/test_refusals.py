"""What each source refuses stands in `refusals.toml`, a row each."""

import pytest

from grounding_rewards.sources import SOURCES, get_source
from tests.tables import table

OPTIONS = table("sources/refusals", "options")
BOMB = '<!DOCTYPE a [<!ENTITY x "ha"><!ENTITY y "&x;&x;&x;">]><annotation><filename>&y;</filename></annotation>'
# In encodings in which a document type is not spelled in ASCII
ENCODED = [
    (('<?xml version="1.0" encoding="utf-16"?>' + BOMB).encode("utf-16"), "without a document type"),
    (b'<?xml version="1.0" encoding="cp037"?>' + BOMB.encode("cp037"), "Expected XML in UTF-8"),
]


def rows(section):
    for name, folders in table("sources/refusals", section).items():
        for files, options, message in folders:
            images = {file: tuple(size) for file, size in files.items() if file.endswith(".png") and size}
            yield name, files | images, options, message


def refusals():
    yield from rows("folders")
    for content, message in [*table("sources/refusals", "voc"), *ENCODED]:
        yield "voc", {"Annotations/a.xml": content}, {}, message
    for line, message in table("sources/refusals", "yolo_lines"):
        files = {"classes.txt": "mass", "images/a.png": (9, 9), "labels/a.txt": f"0 0.5 0.5 0.2 0.4\n{line}\n"}
        yield "yolo", files, {}, f"in line 2 of .*a.txt .*{message}|{message}.* in line 2 of .*a.txt"
    for reports, message in table("sources/refusals", "padchest-gr"):
        files = {"grounded_reports_20240819.json": reports, "master_table.csv": "ImageID,PatientID,split\n"}
        yield "padchest-gr", files, {}, message


@pytest.mark.parametrize(("name", "files", "options", "message"), list(refusals()))
def test_a_refusal_names_what_is_wrong_and_where(write, monkeypatch, tmp_path, name, files, options, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f"(?s){message}"):
        list(get_source(name).read(write(files), **{**OPTIONS.get(name, {}), **options}))


@pytest.mark.parametrize(("name", "files", "options", "message"), list(rows("at_the_call")))
def test_a_folder_that_cannot_be_read_is_refused_at_the_call(write, name, files, options, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        get_source(name).read(write(files), **options)


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("split", [None, "no such split"])
def test_a_missing_file_or_split_is_named_at_the_call(tmp_path, name, split):
    """And not when the first image is asked for."""
    with pytest.raises(ValueError, match=r"Expected .+ (for split|in the folder for `root`).*, got .+\. [A-Z]"):
        get_source(name).read(tmp_path, **{**OPTIONS.get(name, {}), "split": split})
