"""A full disk while writing leaves what was there before; a place is new, or goes on with what it was started with."""

import errno

import pytest

from grounding_rewards.common import atomic_files
from grounding_rewards.common.atomic_files import UNFINISHED, changed_settings, check_new, whole_folder, write_whole


@pytest.fixture
def full_disk(monkeypatch):
    """Bytes are taken and cannot be brought to the disk."""

    def refuse(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic_files.os, "fsync", refuse)


def names(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.mark.parametrize("content", ["new", b"new", "naïve \u2028\r\n"])
def test_a_file_is_written(tmp_path, content):
    write_whole(tmp_path / "a", content)
    expected = content if isinstance(content, bytes) else content.encode()
    assert (tmp_path / "a").read_bytes() == expected
    assert names(tmp_path) == ["a"]


def test_the_old_file_stays(tmp_path, full_disk):
    (tmp_path / "a").write_text("before")
    with pytest.raises(OSError, match="No space left on device"):
        write_whole(tmp_path / "a", "after")
    assert (tmp_path / "a").read_text() == "before"
    assert names(tmp_path) == ["a"]


def test_a_folder_keeps_what_it_has_beside_the_new_files(tmp_path):
    (tmp_path / "metrics").mkdir()
    for name in ("kept", "replaced", "metrics/kept"):
        (tmp_path / name).write_text("before")
    with whole_folder(tmp_path) as unfinished:
        write_whole(unfinished / "replaced", "after")
        write_whole(unfinished / "metrics" / "new", "after")
        assert (tmp_path / "replaced").read_text() == "before"
    assert names(tmp_path) == ["kept", "metrics", "metrics/kept", "metrics/new", "replaced"]
    assert (tmp_path / "replaced").read_text() == "after"


@pytest.mark.parametrize("before", [None, "before"])
def test_a_folder_is_filled_whole_or_not_at_all(tmp_path, before, full_disk):
    folder = tmp_path / "deep" / "run"
    if before is not None:
        folder.mkdir(parents=True)
        (folder / "a").write_text(before)
    with pytest.raises(OSError, match="No space left on device"), whole_folder(folder) as unfinished:
        (unfinished / "a").write_text("after")
    assert names(folder) == ([] if before is None else ["a"])
    assert before is None or (folder / "a").read_text() == before


def test_what_a_killed_process_left_is_no_part_of_the_next(tmp_path):
    (tmp_path / UNFINISHED).mkdir()
    (tmp_path / UNFINISHED / "old").write_text("of the killed process")
    with whole_folder(tmp_path) as unfinished:
        (unfinished / "new").write_text("")
    assert names(tmp_path) == ["new"]


def test_new_places(tmp_path):
    check_new(tmp_path, "--out")
    check_new(tmp_path / "nowhere", "--out")
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"place for --out, got the file '.*file'\. Give another\."):
        check_new(tmp_path / "file", "--out", "Give another.")
    with pytest.raises(ValueError, match=r"place for --out, got the folder .* with files"):
        check_new(tmp_path, "--out")


def test_what_differs_is_named_and_one_folder_has_many_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "images").mkdir()
    before = {"dataset": str(tmp_path / "images"), "seed": 1, "split": "test"}
    assert changed_settings(before, {**before, "dataset": "images"}) == {}
    said = {"dataset": f"dataset 'elsewhere' instead of {before['dataset']!r}", "nms": "nms 0.5 instead of None"}
    said["split"] = "split None instead of 'test'"
    assert changed_settings(before, {"dataset": "elsewhere", "seed": 1, "nms": 0.5}) == said
