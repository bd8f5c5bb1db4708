"""The tutorial, walked from its first block to its last, with small numbers."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

for _library in ("datasets", "matplotlib", "trl"):
    pytest.importorskip(_library, reason="needs the train extra")

from grounding_rewards.cli import main  # noqa: E402
from tests.conftest import REPOSITORY  # noqa: E402
from tests.docs.blocks import blocks, ours, shell_commands  # noqa: E402

TUTORIAL = REPOSITORY / "docs" / "tutorial.md"
# What a reader runs, and what is enough here; every one of them has to be on the page.
SMALLER = {
    '{"train": 2000, "test": 100}': '{"train": 12, "test": 5}',
    "--train_images 2000": "--train_images 8",
    "--max_steps 100": "--max_steps 1",
    "--samples 8": "--samples 2",
}
FEW = ["--per_device_train_batch_size=4", "--num_generations=4", "--save_strategy=no", "--disable_tqdm=true"]


def smaller(text: str) -> str:
    for large, small in SMALLER.items():
        text = text.replace(large, small)
    return text


def test_what_is_made_smaller_is_on_the_page() -> None:
    assert [large for large in SMALLER if large not in TUTORIAL.read_text(encoding="utf-8")] == []


@pytest.mark.training
def test_the_tutorial_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    # The command line puts the working directory there.
    monkeypatch.setattr(sys, "path", [*sys.path])
    [images] = [one.code for one in blocks(TUTORIAL) if one.language == "python"]
    exec(smaller(images), {})
    printed = []
    for words in shell_commands(TUTORIAL):
        command = shlex.split(smaller(shlex.join(words)))
        given = ours(command)
        assert given is not None, words
        # The doctor and signal end with 1 under --strict alone; the images are few and may earn warnings.
        assert main([*given, *(FEW if given[0] == "train" else ())]) == 0, words
        printed.append(capsys.readouterr().out)
    assert len(printed) == 9
    helped = printed[-2]
    assert "mean IoU" in helped
    for page in ("doctor.html", "before/report.html", "helped.html", "r1_or_r4.html"):
        assert (tmp_path / "runs" / "tutorial" / page).stat().st_size > 10_000, page
