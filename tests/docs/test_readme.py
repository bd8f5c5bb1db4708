"""README.md and the two recipes: their commands and Python, on small stand-ins, with the small model."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

for _library in ("datasets", "matplotlib", "pydicom", "trl"):
    pytest.importorskip(_library, reason="needs the train and dicom extras")

from grounding_rewards.cli import main  # noqa: E402
from grounding_rewards.synthetic import draw_radiograph  # noqa: E402
from tests.conftest import REPOSITORY, write_dicom  # noqa: E402
from tests.docs.blocks import blocks, ours, shell_commands  # noqa: E402
from tests.test_scripts import script  # noqa: E402

README = REPOSITORY / "README.md"
RECIPE = REPOSITORY / "docs" / "recipe_vindr_qwen.md"
OWN_SCRIPT = REPOSITORY / "docs" / "recipe_own_script.md"
TINY = "assets/tiny_vlm"
# A processor, one step, and the parts that a GPU, its memory and its library are for left out.
FEW = "--use_cpu --bf16 false --tf32 false --dtype float32 --max_steps 1 --disable_tqdm true --lora_r 2"
SMALLER = {
    "sft": f"{FEW} --per_device_train_batch_size 2 --gradient_accumulation_steps 1 --model_name_or_path {TINY}",
    "train": f"{FEW} --use_vllm false --max_completion_length 24 --generation_batch_size 8",
    "signal": "--samples 2",
}
# The same for a script with stock TRL.
FEW_ARGUMENTS = "max_steps=1, use_cpu=True, bf16=False, num_generations=2, per_device_train_batch_size=2, "
FEW_ARGUMENTS += "max_completion_length=8, disable_tqdm=True, "


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


@pytest.fixture
def small_scripts(workplace: Path) -> Path:
    """A working directory with the prepared dataset and the JSON lines that the Python of the pages reads."""
    from datasets import Dataset, DatasetDict

    from grounding_rewards.data.dataset_columns import add_prompts

    images = [draw_radiograph(index, "pa-112") for index in range(4)]
    rows = []
    for image in images:
        width, height = image.image.size
        image.image.save(workplace / f"{image.id}.png")
        row = {"image": f"{image.id}.png", "boxes": [list(map(float, box)) for box in image.boxes]}
        rows.append({**row, "labels": list(image.labels), "width": width, "height": height})
    (workplace / "images.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    prepared = Dataset.from_list([{**row, "image": image.image} for row, image in zip(rows, images, strict=True)])
    DatasetDict({"train": add_prompts(prepared, "qwen3-vl")}).save_to_disk(workplace / "saved")
    return workplace


@pytest.mark.training
@pytest.mark.parametrize("page", [README, OWN_SCRIPT], ids=lambda page: page.stem)
def test_a_script_with_stock_trl_trains(small_scripts: Path, page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    saved = datasets.load_from_disk(str(small_scripts / "saved"))
    read = datasets.load_dataset

    def load(path, **options):
        return read(path, **options) if path == "json" else saved[options["split"]]

    monkeypatch.setattr(datasets, "load_dataset", load)
    scripts = [block.code for block in blocks(page) if block.language == "python" and "import" in block.code]
    names: dict[str, object] = {}
    for code in reversed(scripts) if page == README else scripts[:1]:
        smaller = code.replace("Qwen/Qwen3-VL-4B-Instruct", str(REPOSITORY / TINY))
        exec(smaller.replace("output_dir=", f"{FEW_ARGUMENTS}output_dir="), names)
    assert names["trainer"].state.global_step == 1
    if page == README:
        assert {"prompt", "image", "resized_width", "box_format"} <= set(names["images"].column_names)


def test_inspect_says_what_the_first_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    [shown] = [block.code for block in blocks(README) if block.language == "console"]
    command, _, said = shown.partition("\n…\n")
    assert main(shlex.split(command.removeprefix("$ grounding-rewards "))) == 0
    assert " ".join(said.split()) in " ".join(capsys.readouterr().out.split())


def test_parsers_are_compared_as_the_first_page_says(shared_dir: Path) -> None:
    path = shared_dir / "data" / "completions" / "completions.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    counts = script("compare_parsers").compare([json.loads(line) for line in lines])
    said = " ".join(README.read_text(encoding="utf-8").split())
    assert f"Of {counts.with_boxes} published completions with boxes, a parser of twelve lines reads " in said
    assert f"reads {counts.twelve_lines}, and finds boxes in {counts.invented} of {counts.without_boxes} that" in said
    assert f"reads all {counts.package}," in said
