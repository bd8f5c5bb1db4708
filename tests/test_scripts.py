"""Scripts that make what the repository holds, and the demo."""

import doctest
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest

import grounding_rewards as gr
from scripts.docs import page_parts
from scripts.docs.page_parts import between, marks_of, replace_part
from tests.conftest import REPOSITORY, load_module, write_lines
from tests.tables import table

SCRIPTS = REPOSITORY / "scripts"


def path_of(name: str) -> Path:
    """The only file of that name in scripts/ and its folders."""
    [path] = SCRIPTS.rglob(f"{name}.py")
    return path


def script(name: str) -> ModuleType:
    return load_module(path_of(name))


@pytest.mark.parametrize(
    "name",
    [
        *("ask_findings", "check_families", "check_gpu", "check_integrations", "check_processes", "draw_before_after"),
        *("draw_rewards", "estimate_memory", "find_small_nodules", "fuzz_parsing", "lowest_versions"),
        *("place_images", "search_exploits", "simulate_dependence", "simulate_signal"),
        *("take_pictures", "write_audit", "write_formats", "write_golden", "write_licences"),
        *("write_published_rewards", "write_study"),
        # Scripts for launchers are the commands.
        *("train_grpo --reward_kwargs", "train_sft --box_noise"),
    ],
)
def test_help_teaches(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    name, _, option = name.partition(" ")
    path = path_of(name)
    # Within this process, which has loaded what they import.
    monkeypatch.setattr(sys, "argv", [str(path), "--help"])
    with pytest.raises(SystemExit, match=r"^0$"):
        runpy.run_path(str(path), run_name="__main__")
    assert (option or f"python {path.relative_to(REPOSITORY)}") in capsys.readouterr().out


def test_the_responses_of_any_rewards_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["", "--rewards", "R3", "soft_f1", "--folder", str(tmp_path)])
    script("draw_rewards").main()
    assert (tmp_path / "responses.png").read_bytes().startswith(b"\x89PNG")


def test_the_page_of_formats_shows_how_further_models_are_read() -> None:
    # an image of 1000 × 800 that reaches the model as 1008 × 812, as on the page; within half a unit
    sizes = {"width": 1000, "height": 800, "resized_width": 1008, "resized_height": 812}
    for models, declared, text, source in script("write_formats").ALSO_READ:
        parsed = gr.parse_boxes(text, declared, **sizes)
        np.testing.assert_allclose(parsed.boxes, [[200, 160, 400, 480]], rtol=0, atol=0.5, err_msg=models)
        assert (parsed.labels, parsed.status, parsed.rejected) == (("mass",), "boxes", {}), models
        assert source, models


def test_the_table_of_formats_is_up_to_date() -> None:
    subprocess.run([sys.executable, path_of("write_formats"), "--check"], check=True)


class TestNumbersThatAreKept:
    """write_golden.py: a number of a reward changes with a version that breaks with earlier ones alone."""

    BEFORE: ClassVar = {"version": "1.4.0", "numbers": {"R3": {"one": {"right": 1.0, "loose": 0.7}}}}

    @pytest.mark.parametrize(("numbers", "version"), table("cases", "another_number_is_refused"))
    def test_another_number_is_refused(self, numbers: dict[str, Any], version: str) -> None:
        with pytest.raises(ValueError, match=r"Expected the numbers of version 1\.4\.0, got . others"):
            script("write_golden").check(numbers, self.BEFORE, version)

    def test_a_new_major_version_and_new_rows_are_free(self) -> None:
        check = script("write_golden").check
        check({"R3": {"one": {"right": 0.9}}}, self.BEFORE, "2.0.0")
        check({**self.BEFORE["numbers"], "R6": {"one": {"right": 0.5}}}, self.BEFORE, "1.4.0")

    @pytest.mark.parametrize(("new", "old", "breaks"), table("cases", "which_versions_break"))
    def test_which_versions_break(self, new: str, old: str, breaks: bool) -> None:
        assert script("write_golden").breaks(new, old) is breaks


class TestThePageOfTheAudit:
    """docs/audit.md says what scripts/docs/write_audit.py computes; here the parts of it that take no minutes."""

    PAGE = (REPOSITORY / "docs" / "audit.md").read_text(encoding="utf-8")

    @pytest.mark.parametrize("table", ["omissions", "exclusive_guesses", "near_misses", "break_evens"])
    def test_its_quick_tables_are_up_to_date(self, table: str) -> None:
        assert getattr(script("write_audit"), table)() in self.PAGE

    def test_what_it_claims_of_each_matching(self) -> None:
        made = script("write_audit")
        for reward in ("R3", "R5"):
            assert made.junk_helps(reward, "thresholded_hungarian", images=300)[0] == 0
        helped, most = made.junk_helps("R5", "hungarian", images=1200)
        assert helped > 0
        assert 0.05 < most <= 0.3
        assert made.better_box_costs("R3", "thresholded_hungarian", images=300)[0] == 0
        assert made.better_box_costs("R3", "greedy", images=600)[0] > 0
        assert made.half_box()["hungarian"][1] == 0.0


def test_the_table_of_trainers_keeps_the_rows_of_others() -> None:
    module = script("check_integrations")
    page = "# A\n\n" + "\n".join(module.MARKS) + "\nafter\n"
    cells = [
        module.row("openrlhf", "loaded", ["load openrlhf | call"], [], {"openrlhf": "0.11.2", "torch": "2.13.0"}),
        module.row("verl", "GRPO", ["2 steps"], [], {"verl": "0.9.1", "ray": "2.60.0"}, "3e-07"),
        module.row("easyr1", "not in the registry", [], [], {}),
    ]
    rows = {(row[0].split()[0], row[1]): row for row in cells}
    written = module.with_rows(page, rows)
    assert module.read_rows(written) == rows
    # A row that was tried again takes the place of the old one.
    again = module.row("verl", "GRPO", [], ["no weight moved"], {"verl": "0.9.2"})
    later = module.with_rows(written, {**rows, ("verl", "GRPO"): again})
    assert "2 steps" not in later
    assert module.read_rows(later) == {**rows, ("verl", "GRPO"): again}
    assert later.endswith("\nafter\n")


def test_a_search_finds_what_r1_pays_for_the_order() -> None:
    searched = script("search_exploits")
    gain, case = searched.search(gr.get_reward("R1", box_format="qwen3-vl"), "another order", seconds=0.2)
    assert gain > 0
    assert sorted(map(str, case.before)) == sorted(map(str, case.after))
    assert "findings" in searched.shown(case)


def test_signal_is_simulated_on_answers_of_the_stated_quality() -> None:
    simulation = script("simulate_signal")
    weak, strong = 0.2, 0.9
    simulation.MODELS = {one: simulation.MODELS[one] for one in (weak, strong)}
    found = simulation.simulate(images=30)
    for mean_iou, (answered, groups) in found.items():
        assert answered.mean_iou == pytest.approx(mean_iou, abs=0.08)
        shares = {name: one.no_spread for name, one in groups.items()}
        assert shares["soft_f1"] <= shares["R4, τ 0.3"] <= shares["R4, τ 0.5"]
    # Weak models starve below τ, and R1 where all is right. R5's lower curve counts where τ is lower.
    lower = found[weak][1]["R5, τ 0.3, thresholded_hungarian"]
    assert lower.no_spread < found[weak][1]["R5, τ 0.5"].no_spread - 0.2
    assert found[weak][1]["R4, τ 0.5"].metrics()["all_below_threshold"] > 0.2
    assert found[strong][1]["R1, τ 0.5"].metrics()["all_perfect"] > 0.4
    part = simulation.page_part(found, 30)
    # Rows of rewards that say the same are one; R1 and the others differ.
    assert part.count("| R") >= 3


def test_parts_of_pages_stand_between_marks_that_are_there_once() -> None:
    begin, end = marks_of("one")
    assert not doctest.testmod(page_parts).failed
    for page in ("nothing", begin, f"{end}{begin}", f"{begin}{end}{begin}{end}"):
        with pytest.raises(ValueError, match="once each in the page"):
            replace_part(page, (begin, end), "new")


def test_the_table_of_processes_has_a_row_for_each_check() -> None:
    checks = script("check_processes")
    table = between((REPOSITORY / "docs" / "cluster.md").read_text(encoding="utf-8"), checks.MARKS)
    for row in checks.rows([2, 4]):
        assert f"\n| {row.engine} | {row.mode} | {row.processes} | {row.ran} | " in table
    assert "failed" not in table
    assert "not run" not in table


@pytest.mark.parametrize(("ratios", "slower"), table("cases", "what_counts_as_slower_than_another_commit"))
def test_what_counts_as_slower_than_another_commit(ratios: list[float], slower: bool) -> None:
    assert runpy.run_path(str(REPOSITORY / "benchmarks" / "compare.py"))["judge"](ratios)[2] is slower


def test_published_rewards_earn_on_nihs_boxes_what_the_page_says(
    shared_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boxes = shared_dir / "data/annotations/nih_chestxray14/BBox_List_2017.csv"
    predictions = shared_dir / "data/completions/general_grounding.jsonl"
    made = script("write_published_rewards")
    # Fewer groups than the page has: what never looking earns does not depend on them.
    monkeypatch.setattr(made, "GROUPS", 5)
    numbers = made.measured(boxes, predictions)
    page = (REPOSITORY / "docs" / "published_rewards.md").read_text(encoding="utf-8")
    for name in made.NAMES:
        one = numbers[name]
        assert f"| `{name}` | {one['never looking']:.2f} | {one['whole image']:.2f} | {one['nothing']:.2f} |" in page
        assert f" | {one['map'].min():.2f} to {one['map'].max():.2f} |" in page
    assert f"{numbers['medvision']['never looking']:.2f} of 1 under `medvision` and" in page
    assert f"{numbers['IoU']['never looking']:.2f} mean IoU on NIH's boxes" in page


def test_boxes_move_with_their_placed_images_and_blank_ones_hold_the_same(tmp_path: Path) -> None:
    from PIL import Image

    row = {"width": 40, "height": 20, "boxes": [[10, 5, 30, 15]], "labels": ["lung"]}
    splits = ["test"] * 3 + ["train"] * 9
    rows = [{**row, "file": f"{k}.png", "patient_id": f"p{k}", "split": split} for k, split in enumerate(splits)]
    for one in rows:
        Image.new("L", (40, 20), 255).save(tmp_path / one["file"])
    write_lines(tmp_path / "annotations.jsonl", rows)
    other = {**rows[0], "boxes": [[0, 0, 40, 20]], "ignore_boxes": [[0, 0, 1, 1]]}
    write_lines(tmp_path / "second_reader.jsonl", [other])
    placed = script("place_images").placed_squares
    shown, blank = (list(placed(tmp_path, tmp_path / str(b), 100, 3, b)) for b in (False, True))
    assert shown == blank
    assert all(np.ptp(np.asarray(Image.open(tmp_path / "True" / line["file"]))) == 0 for line in blank)
    squares = [line for line in shown if line["split"] != "second_reader"]
    for line in (found := [line for line in squares if line["boxes"]]):
        ys, xs = np.nonzero(np.asarray(Image.open(tmp_path / "False" / line["file"])) == 255)
        x1, y1, x2, y2 = line["boxes"][0]
        # The box takes up the middle half of the white square.
        assert (x2 - x1, y2 - y1) == pytest.approx(((np.ptp(xs) + 1) / 2, (np.ptp(ys) + 1) / 2), abs=1)
        assert (x1 + x2) / 2 == pytest.approx((xs.min() + xs.max() + 1) / 2, abs=1)
        assert (y1 + y2) / 2 == pytest.approx((ys.min() + ys.max() + 1) / 2, abs=1)
    assert len({tuple(line["boxes"][0]) for line in found}) == len(found)
    assert len(squares) - len(found) == len(squares) // 5
    splits = {(line["patient_id"], line["split"].replace("second_reader", "test")) for line in shown}
    assert len(splits) == len({patient for patient, _ in splits})


def test_boxes_of_questions_move_along_and_no_name_leads_back_to_a_patient(tmp_path: Path) -> None:
    """NIH's own layout: a white finding on grey in each image, and a second one whose box lies elsewhere."""
    from PIL import Image

    (tmp_path / "images").mkdir()
    pixels = np.full((1024, 1024), 90, np.uint8)
    pixels[300:500, 200:320] = 255
    pixels[0, 0] = 0
    rows = ["Image Index,Finding Label,Bbox [x,y,w,h],,,"]
    for number in range(12):
        name = f"{number:08d}_000.png"
        Image.fromarray(pixels).save(tmp_path / "images" / name)
        rows += [f"{name},Infiltrate,200,300,120,200,,", f"{name},Effusion,600,600,300,300,,"]
    (tmp_path / "BBox_List_2017.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    lines = list(script("ask_findings").asked(tmp_path, tmp_path / "out", 128, 4))
    assert {line["labels"][0] for line in lines} == {"infiltration", "pleural effusion"}
    seen = [line for line in lines if line["labels"] == ["infiltration"]]
    for line in seen:
        ys, xs = np.nonzero(np.asarray(Image.open(tmp_path / "out" / line["file"])) > 200)
        assert line["boxes"][0] == pytest.approx([xs.min(), ys.min(), xs.max() + 1, ys.max() + 1], abs=1.5)
    assert len({tuple(line["boxes"][0]) for line in seen if line["split"] == "train"}) > 12
    assert not any("0000" in line["file"] + line["id"] for line in lines)
    # Each of twelve patients is in one split.
    assert len({(line["patient_id"], line["split"]) for line in lines}) == 12
    assert len({line["patient_id"] for line in lines}) == 12


@pytest.mark.training
def test_a_measured_training_has_random_weights_of_the_size_that_was_asked_for(tmp_path):
    """scripts/checks/check_gpu.py, at the size of the shipped model; what adds up to a step is less than it."""
    import torch
    from safetensors.torch import load_file

    check = script("check_gpu")
    torch.set_num_threads(1)
    weights = check.make_model(str(check.TINY), tmp_path / "model")
    made, shipped = (load_file(folder / "model.safetensors") for folder in (tmp_path / "model", check.TINY))
    assert weights == sum(weight.numel() for weight in shipped.values())
    assert not any(torch.equal(made[name], shipped[name]) for name in made if made[name].dim() > 1)
    values = {**check._TINY, "max_steps": 3, "model_name_or_path": tmp_path / "model", "output_dir": tmp_path / "run"}
    found = check.measured([word for name, value in values.items() for word in (f"--{name}", str(value))])
    assert (found["steps"], found["completions"], found["finite"]) == (2, 4, True)
    assert 0 < found["reward"] < found["generation"] + found["reward"] < found["seconds"]
    assert found["peak"] > 1e8
    assert "| tiny, 1 million |" in check.table({"transformers": found}, "tiny", weights, "2026-01-02")
