"""The first page and the recipe: their commands, and the script that makes a dataset, on small stand-ins."""

import shlex
from pathlib import Path
from typing import Any

import pytest

for _library in ("datasets", "matplotlib", "pydicom", "trl"):
    pytest.importorskip(_library, reason="needs the train and dicom extras")

from grounding_rewards.cli import main  # noqa: E402
from grounding_rewards.synthetic import draw_radiograph  # noqa: E402
from tests.conftest import REPOSITORY, read_lines, write_dicom, write_lines  # noqa: E402
from tests.docs.blocks import blocks, ours, shell_commands  # noqa: E402
from tests.test_scripts import script  # noqa: E402

README = REPOSITORY / "README.md"
RECIPE = REPOSITORY / "docs" / "recipe_vindr_qwen.md"
TINY = "assets/tiny_vlm"
# A processor, one step, and the parts that a GPU, its memory and its library are for left out.
FEW = "--use_cpu --bf16 false --tf32 false --dtype float32 --max_steps 1 --disable_tqdm true --lora_r 2"
SMALLER = {
    "sft": f"{FEW} --per_device_train_batch_size 2 --gradient_accumulation_steps 1 --model_name_or_path {TINY}",
    "train": f"{FEW} --use_vllm false --max_completion_length 24 --generation_batch_size 8",
    "signal": "--samples 2",
}


def vindr(root: Path) -> None:
    """VinDr-CXR as PhysioNet has it: three readers of whom two agree on eight images, a consensus on four."""
    columns = "class_name,x_min,y_min,x_max,y_max"
    lines = {"train": [f"image_id,rad_id,{columns}"], "test": [f"image_id,{columns}"]}
    for index in range(12):
        image, split = draw_radiograph(index, "pa-112"), "train" if index < 8 else "test"
        write_dicom(image, root / split)
        boxes = [f"{label},{','.join(map(str, box))}" for label, box in zip(image.labels, image.boxes, strict=True)]
        for reader in ("R1,", "R2,", "R3,") if split == "train" else ("",):
            drawn = [] if reader == "R3," else boxes
            lines[split] += [f"{image.id},{reader}{finding}" for finding in drawn or ["No finding,,,,"]]
    (root / "annotations").mkdir()
    for split, of_split in lines.items():
        (root / "annotations" / f"annotations_{split}.csv").write_text("\n".join(of_split) + "\n")


@pytest.mark.training
@pytest.mark.parametrize(
    ("page", "commands", "pages"),
    [
        (README, 9, ("doctor.html", "diff.html", "runs/before/report.html", "runs/after/report.html")),
        (RECIPE, 10, ("doctor.html", "diff.html", "runs/vindr/before/report.html", "runs/vindr/after/report.html")),
    ],
    ids=["README", "recipe"],
)
def test_commands_of_a_page_run_in_its_order(
    workplace: Path, capsys: pytest.CaptureFixture[str], page: Path, commands: int, pages: tuple[str, ...]
) -> None:
    vindr(workplace / "path" / "to" / "vindr-cxr")
    printed = [command for words in shell_commands(page) if (command := ours(words)) is not None]
    assert len(printed) == commands
    for words in printed:
        smaller = [TINY if word.startswith("Qwen/") else word.replace("512", "24") for word in words]
        if words[0] in ("signal", "evaluate") and "--max-new-tokens" not in words:
            smaller += ["--max-new-tokens", "24"]
        code = main([*smaller, *shlex.split(SMALLER.get(words[0], ""))])
        said = capsys.readouterr()
        # The doctor ends with 1 where it finds something.
        assert code in ((0, 1) if words[0] == "doctor" else (0,)), (words, said.err)
    assert "F1 at IoU 0.5" in said.out
    for file in pages:
        assert (workplace / file).stat().st_size > 10_000, file


@pytest.mark.training
def test_the_script_of_the_first_page_makes_a_dataset(workplace: Path) -> None:
    """From JSON lines; the scripts that train are run by tests/training/test_contract.py."""
    rows = []
    for index in range(4):
        image = draw_radiograph(index, "pa-112")
        image.image.save(f"{image.id}.png")
        row = {"image": f"{image.id}.png", "boxes": [list(map(float, box)) for box in image.boxes]}
        rows.append({**row, "labels": list(image.labels), "width": image.image.width, "height": image.image.height})
    write_lines("images.jsonl", rows)
    [script] = [block.code for block in blocks(README) if "images.jsonl" in block.code]
    names: dict[str, Any] = {}
    exec(script.replace("Qwen/Qwen3-VL-4B-Instruct", str(REPOSITORY / TINY)), names)
    assert {"prompt", "image", "resized_width", "box_format"} <= set(names["images"].column_names)


def test_inspect_says_what_the_first_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    [shown] = [block.code for block in blocks(README) if block.language == "console"]
    command, _, said = shown.partition("\n…\n")
    assert main(shlex.split(command.removeprefix("$ grounding-rewards "))) == 0
    assert " ".join(said.split()) in " ".join(capsys.readouterr().out.split())


def test_parsers_are_compared_as_the_first_page_says(shared_dir: Path) -> None:
    path = shared_dir / "data" / "completions" / "completions.jsonl"
    counts = script("compare_parsers").compare(read_lines(path))
    said = " ".join(README.read_text(encoding="utf-8").split())
    assert f"Of {counts.with_boxes} published completions with boxes, a parser of twelve lines reads " in said
    assert f"reads {counts.twelve_lines}, and finds boxes in {counts.invented} of {counts.without_boxes} that" in said
    assert f"reads all {counts.package}," in said
