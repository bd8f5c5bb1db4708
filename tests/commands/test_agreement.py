"""The command `agreement`: the table, the metrics in a file, and options of the reader."""

from __future__ import annotations

import json

from grounding_rewards import sources
from tests.commands.conftest import call
from tests.data.test_readers import THREE


def test_command(tmp_path, capsys, monkeypatch):
    source = sources.Source(lambda root, *, split=None: iter([THREE] if split else []))
    monkeypatch.setitem(sources.SOURCES, "vindr-cxr", source)
    path = tmp_path / "agreement.json"
    options = ["vindr-cxr", "--root", "r", "--split", "train", "--iou", "0.45", "--json", str(path)]
    assert call("agreement", *options) == 0
    printed = capsys.readouterr().out
    assert "vindr-cxr: 3 pairs of readers on 1 images" in printed
    assert "F1@0.45" in printed
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["overall"]["f1"] == {"0.45": [0.6, 0.0, 1.0]}
    assert content["labels"][1] == {
        "label": "nodule",
        "findings": 1,
        "drawn_by": [1, 0, 0],
        "f1": {"0.45": [0.0, 0.0, 1.0]},
        "mean_iou": [None, None, None],
    }
