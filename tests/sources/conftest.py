"""Folders of datasets, written by what stands in their files."""

import json

import pytest


@pytest.fixture
def write(tmp_path):
    """Write files below a folder: texts, bytes, JSON of a list or an object, images by their size."""

    def write_files(files):
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, tuple):
                image = pytest.importorskip("PIL.Image", reason="needs the train extra")
                image.new("L", content).save(path)
            elif isinstance(content, bytes):
                path.write_bytes(content)
            else:
                path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return tmp_path

    return write_files


@pytest.fixture
def folder(write):
    """Write rows as the lines of train.jsonl."""
    return lambda *rows: write({"train.jsonl": "\n".join(map(json.dumps, rows))})
