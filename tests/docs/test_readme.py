"""README.md: its commands, on a small folder in the layout that they name, with the small model; what ran where."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

for _library in ("datasets", "matplotlib", "pydicom", "trl"):
    pytest.importorskip(_library, reason="needs the train and dicom extras")

from grounding_rewards.cli import main  # noqa: E402
from grounding_rewards.synthetic import draw_radiograph  # noqa: E402
from tests.conftest import REPOSITORY, write_dicom  # noqa: E402
from tests.docs.blocks import ours, shell_commands  # noqa: E402

README = REPOSITORY / "README.md"
MODEL = "Qwen/Qwen2.5-VL-3B-Instruct"
# A processor, one step, and the parts that a GPU, its memory and its library are for left out.
FEW = "--use_cpu --bf16 false --tf32 false --dtype float32 --max_steps 1 --disable_tqdm true --lora_r 2"
SMALLER = {
    "sft": f"{FEW} --per_device_train_batch_size 2 --gradient_accumulation_steps 1",
    "train": f"{FEW} --use_vllm false --max_completion_length 24 --generation_batch_size 8",
    "signal": "--samples 2 --max-new-tokens 24",
    "evaluate": "--max-new-tokens 24",
}


def vindr(root: Path) -> None:
    """VinDr-CXR as PhysioNet has it: three readers of whom two agree on eight images, a consensus on four."""
    lines = {
        "train": ["image_id,rad_id,class_name,x_min,y_min,x_max,y_max"],
        "test": ["image_id,class_name,x_min,y_min,x_max,y_max"],
    }
    for index in range(12):
        image, split = draw_radiograph(index, "pa-112"), "train" if index < 8 else "test"
        write_dicom(image, root / split)
        boxes = [f"{label},{','.join(map(str, box))}" for label, box in zip(image.labels, image.boxes, strict=True)]
        for reader in ("R1,", "R2,", "R3,") if split == "train" else ("",):
            drawn = [] if reader == "R3," else boxes
            lines[split] += [f"{image.id},{reader}{one}" for one in drawn or ["No finding,,,,"]]
    (root / "annotations").mkdir()
    for split, of_split in lines.items():
        (root / "annotations" / f"annotations_{split}.csv").write_text("\n".join(of_split) + "\n")


@pytest.mark.training
def test_every_command_of_the_first_page_runs(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vindr(workplace / "path" / "to" / "vindr-cxr")
    commands = [given for words in shell_commands(README) if (given := ours(words)) is not None]
    assert len(commands) == 9
    for words in commands:
        here = ["assets/tiny_vlm" if word == MODEL else word for word in words]
        if words[0] == "sft":
            here += ["--model_name_or_path", "assets/tiny_vlm"]
        ended = main([*here, *shlex.split(SMALLER.get(words[0], ""))])
        said = capsys.readouterr()
        # The doctor ends with 1 where it finds something.
        assert ended in ((0, 1) if words[0] == "doctor" else (0,)), (words, said.err)
    assert "F1 at IoU 0.5" in said.out
    for page in ("doctor.html", "diff.html", "runs/before/report.html", "runs/after/report.html"):
        assert (workplace / page).stat().st_size > 10_000, page


def table_rows(page: str, engine: str) -> list[list[str]]:
    """The cells of a page's table rows about an engine."""
    lines = (REPOSITORY / page).read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith(f"| {engine}")]


def test_what_ran_where_repeats_the_tables_that_scripts_write() -> None:
    summary = {(cells[0], cells[1]): cells[3] for cells in table_rows("README.md", "v")}
    measured = table_rows("docs/cluster.md", "vLLM |")
    colocate = [
        float(cells[3].split()[0]) for cells in measured if cells[1].startswith("colocate") and cells[3][0] == "0"
    ]
    assert summary["vLLM, colocate", "all weights, LoRA, bf16"] == f"at most {max(colocate):g}"
    [server] = [cells[3] for cells in measured if cells[1].startswith("server")]
    assert summary["vLLM, server", "all weights"] == server
    [trained] = [cells[4] for cells in table_rows("docs/trainers.md", "verl") if cells[1].startswith("GRPO")]
    assert summary["verl 0.9.1 with vLLM", "all weights"] == f"{trained} (of p)"
