"""The tutorial, walked from its first block to its last, with small numbers."""

import json
import runpy
import shlex
import shutil
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
    "--max-images 200": "--max-images 8",
}
# From here on real radiographs, which the reader has downloaded.
REAL = "scripts/studies/ask_findings.py"
FEW = ["--per_device_train_batch_size=4", "--num_generations=4", "--save_strategy=no", "--disable_tqdm=true"]


def smaller(text: str) -> str:
    for large, small in SMALLER.items():
        text = text.replace(large, small)
    return text


def commands() -> tuple[list[list[str]], list[list[str]]]:
    """The commands on drawn images, and those on real ones."""
    every = list(shell_commands(TUTORIAL))
    first = next(k for k, words in enumerate(every) if REAL in words)
    return every[:first], every[first:]


def test_what_is_made_smaller_is_on_the_page() -> None:
    assert [large for large in SMALLER if large not in TUTORIAL.read_text(encoding="utf-8")] == []


@pytest.mark.training
def test_the_tutorial_arrives(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [images] = [one.code for one in blocks(TUTORIAL) if one.language == "python"]
    exec(smaller(images), {})
    printed = []
    for words in commands()[0]:
        command = shlex.split(smaller(shlex.join(words)))
        given = ours(command)
        assert given is not None, words
        # The doctor and signal end with 1 under --strict alone; the images are few and may earn warnings.
        assert main([*given, *(FEW if given[0] == "train" else ())]) == 0, words
        printed.append(capsys.readouterr().out)
    assert len(printed) == 10
    helped = printed[-3]
    assert "mean IoU" in helped
    for page in ("doctor.html", "before/report.html", "helped.html", "r1_or_r4.html"):
        assert (workplace / "runs" / "tutorial" / page).stat().st_size > 10_000, page


@pytest.mark.training
def test_it_arrives_with_real_radiographs_too(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, shared_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nih = shared_dir / "data" / "nih_findings"
    lines = (nih / "annotations.jsonl").read_text(encoding="utf-8").splitlines()[:60]
    (workplace / "nih" / "images").mkdir(parents=True)
    (workplace / "nih" / "annotations.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for line in lines:
        shutil.copy(nih / json.loads(line)["file"], workplace / "nih" / "images")
    (_, script, _, asked), *rest = commands()[1]
    monkeypatch.setattr(sys, "argv", [script, "nih", asked, "--copies", "2"])
    runpy.run_path(str(REPOSITORY / script), run_name="__main__")
    printed = []
    for words in rest:
        given = ours(words)
        assert given is not None, words
        assert main([*given, *(("--max_steps=1", "--disable_tqdm=true") if given[0] == "sft" else ())]) == 0, words
        printed.append(capsys.readouterr().out)
    assert [words[1] for words in rest] == ["doctor", "sft", "evaluate"]
    report = (workplace / "runs" / "nih_findings_test" / "report.html").read_text(encoding="utf-8")
    assert "image dependence" in report
    # The warning that the page explains.
    assert "Hardly any or nearly only images without boxes" in printed[0]
    assert "error " not in printed[0]
