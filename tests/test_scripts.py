"""Scripts that make what the repository holds, and the demo."""

from __future__ import annotations

import importlib.util
import json
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import grounding_rewards as gr
from grounding_rewards.cli import main
from grounding_rewards.data.load import load_split
from tests.conftest import REPOSITORY

SCRIPTS = REPOSITORY / "scripts"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "name",
    [
        *("fuzz_parsing.py", "judge_sentences.py", "measure_answer_tokens.py"),
        *("simulate_signal.py", "take_pictures.py", "write_formats.py", "draw_schedules.py"),
        *("draw_rewards.py", "search_exploits.py", "write_audit.py", "simulate_study.py", "write_study.py"),
        "find_small_nodules.py",
    ],
)
def test_help_teaches(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    # Within this process, which has loaded what they import.
    monkeypatch.setattr(sys, "argv", [str(SCRIPTS / name), "--help"])
    monkeypatch.setattr(sys, "path", [str(SCRIPTS), *sys.path])
    with pytest.raises(SystemExit, match=r"^0$"):
        runpy.run_path(str(SCRIPTS / name), run_name="__main__")
    assert f"python scripts/{name}" in capsys.readouterr().out


def test_the_page_of_formats_shows_how_further_models_are_read() -> None:
    # a film of 1000 × 800 that reaches the model as 1008 × 812, as on the page; within half a unit
    sizes = {"width": 1000, "height": 800, "resized_width": 1008, "resized_height": 812}
    for models, declared, text, source in script("write_formats").ALSO_READ:
        parsed = gr.parse_boxes(text, declared, **sizes)
        np.testing.assert_allclose(parsed.boxes, [[200, 160, 400, 480]], rtol=0, atol=0.5, err_msg=models)
        assert (parsed.labels, parsed.status, parsed.rejected) == (("mass",), "boxes", {}), models
        assert source, models


def test_the_table_of_formats_is_up_to_date() -> None:
    subprocess.run([sys.executable, SCRIPTS / "write_formats.py", "--check"], check=True)


def test_the_tokens_of_answers_are_measured_with_any_tokenizer(capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = REPOSITORY / "assets" / "tiny_vlm"
    script("measure_answer_tokens").main([f"tiny={tokenizer}", "--formats", "qwen2.5-vl"])
    header, _, row = capsys.readouterr().out.splitlines()
    assert header == "| box format | tiny |"
    assert row.startswith("| `qwen2.5-vl` | ")


def test_the_table_of_judged_sentences_is_up_to_date() -> None:
    subprocess.run([sys.executable, SCRIPTS / "judge_sentences.py", "--check"], check=True)


def test_a_list_of_sentences_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.tsv"
    path.write_text(
        "negative\twrist\tNo fracture.\nnegative\twrist\tHm.\nfinding\tspine\tA fracture.\n", encoding="utf-8"
    )
    command = [sys.executable, SCRIPTS / "judge_sentences.py", path]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "| mine | no | wrist | 2 | 1 (50.0%) | 0 | – |" in printed
    assert "| mine | no | all | 2 | 1 (50.0%) | 1 | 0 (0.0%) |" in printed
    assert "mine: negative, wrist: Hm." in printed
    path.write_text("no fracture\n", encoding="utf-8")
    done = subprocess.run(command, capture_output=True, text=True)
    assert "Expected negative or finding, a region and a text, between tabs, for line 1" in done.stderr


def run_demo(monkeypatch: pytest.MonkeyPatch, *options: str) -> list[list[str]]:
    """Run the demo; its commands run within this process, which has loaded torch already."""
    called: list[list[str]] = []

    def call(words: list[str], **_: Any) -> int:
        called.append(words)
        return main(words[words.index("grounding_rewards.cli") + 1 :])

    module = script("demo")
    monkeypatch.chdir(REPOSITORY)
    monkeypatch.setattr(module.subprocess, "call", call)
    monkeypatch.setattr(sys, "argv", ["demo.py", *options])
    module.main()
    return called


@pytest.mark.training
def test_the_demo_leaves_a_page_a_card_and_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from datasets import DatasetDict

    splits = {"train": load_split("synthetic", "train", films=8), "test": load_split("synthetic", "test", films=5)}
    DatasetDict(splits).save_to_disk(str(tmp_path / "films"))
    out = tmp_path / "demo"
    few = ["--films", "4", "--samples", "2", "--output_dir", str(out), "--dataset", str(tmp_path / "films")]
    few += ["--train_films", "8", "--per_device_train_batch_size", "4", "--num_generations", "4"]
    few += ["--max_steps", "1", "--max_completion_length", "8", "--save_strategy", "no", "--disable_tqdm", "true"]
    called = run_demo(monkeypatch, *few, "--reward", "R2")
    assert called[1][1:3] == ["-m", "accelerate.commands.launch"]
    assert {path.name for path in out.iterdir()} >= {
        *("before", "after", "checkpoint", "index.html", "films.png", "curves.png", "diff.json", "log.jsonl"),
    }
    printed = capsys.readouterr().out
    for row in ("before ", "after ", "after − before ", "constant box ", "nothing found ", "whole image "):
        assert f"\n  {row}" in printed
    assert (out / "index.html").as_uri() in printed
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "http://" not in page
    assert "https://" not in page
    assert page.count("data:image/jpeg") == 4
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "trained by GRPO with\ngrounding_rewards" in card
    assert "R2: " in card
    content = json.loads((out / "diff.json").read_text(encoding="utf-8"))
    assert content["figures"]["sampled_reward"]["heading"] == "sampled reward"
    assert content["baselines"]["nothing found"]["label_accuracy"][0] is None
    facts = json.loads((out / "after" / "evaluation.json").read_text(encoding="utf-8"))["facts"]
    assert "at most 8 new tokens" in facts["decoding"]
    assert "no_box_bonus=0.2" in facts["reward"]


def test_the_demo_refuses_several_rewards_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    options = ["--output_dir", str(tmp_path / "run"), "--reward", "R1", "R2", "--reward_kwargs", "[{}, {}]"]
    monkeypatch.setattr(sys, "argv", ["demo.py", *options])
    with pytest.raises(SystemExit, match="Expected one reward for --reward, got R1, R2"):
        script("demo").main()
    assert not (tmp_path / "run").exists()


def words_of_the_demo(monkeypatch: pytest.MonkeyPatch, *options: str) -> list[list[str]]:
    """The commands of the demo, none of which runs."""
    monkeypatch.setattr(sys.modules[__name__], "main", lambda words: 0)
    called = run_demo(monkeypatch, *options)
    return [words[words.index("grounding_rewards.cli") + 1 :] for words in called]


def test_the_warm_start_comes_first_on_the_same_films(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["--config", "configs/demo/real_films.yaml", "--warm_start", "configs/demo/sft_real_films.yaml"]
    called = words_of_the_demo(monkeypatch, *options, "--output_dir", str(tmp_path), "--dataset", "mine")
    assert [words[0] for words in called] == ["sft", "evaluate", "train", "evaluate", "diff"]
    warm, start = tmp_path / "warm_start", str(tmp_path / "warm_start" / "checkpoint")
    assert called[0][-6:] == ["--dataset", "mine", "--train_split", "train", "--output_dir", str(warm)]
    assert called[1][called[1].index("--model") + 1] == start
    assert called[2][called[2].index("--model_name_or_path") + 1] == start
    assert called[2][-1] == "--overwrite"
    assert all(words[words.index("--dataset") + 1] == "mine" for words in called[:4])


@pytest.mark.parametrize(
    ("option", "commands"),
    [
        (["--trained"], ["evaluate", "evaluate", "diff"]),
        (["--resume_from_checkpoint", "last"], ["evaluate", "train", "evaluate", "diff"]),
    ],
)
def test_what_is_trained_is_not_trained_again(
    option: list[str], commands: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = words_of_the_demo(monkeypatch, "--output_dir", str(tmp_path), *option)
    assert [words[0] for words in called] == commands
    assert not any("--overwrite" in words for words in called)


def test_pictures_of_a_page_are_taken(tmp_path: Path) -> None:
    pytest.importorskip("playwright", reason="needs playwright, which is in the dev extra")
    pytest.importorskip("matplotlib", reason="needs the train extra")
    pictures = script("take_pictures")
    with pytest.raises(ValueError, match="Expected the page of an evaluation"):
        pictures.take_pictures(tmp_path / "report.html", tmp_path)
    if pictures.find_browser() is None:
        pytest.skip("needs Chromium, as in `apt-get install chromium`")
    from PIL import Image

    from grounding_rewards.report.evaluation_page import render_evaluation_page
    from tests.report.evaluations import page

    (tmp_path / "report.html").write_text(render_evaluation_page(page()), encoding="utf-8")
    taken = pictures.take_pictures(tmp_path / "report.html", tmp_path / "pictures")
    assert [path.name for path in taken] == ["evaluation.png", "evaluation_films.png"]
    committed = REPOSITORY / "docs" / "pictures"
    for path in taken:
        with Image.open(path) as picture, Image.open(committed / path.name) as known:
            assert picture.size == known.size
            # something is drawn
            assert len(picture.convert("RGB").getcolors(1 << 20)) > 20


class TestThePageOfTheAudit:
    """docs/audit.md says what scripts/write_audit.py computes; here the parts of it that take no minutes."""

    PAGE = (REPOSITORY / "docs" / "audit.md").read_text(encoding="utf-8")

    @pytest.mark.parametrize(
        "table", ["ceilings", "reader_incentives", "omissions", "exclusive_guesses", "break_evens"]
    )
    def test_its_quick_tables_are_up_to_date(self, table: str) -> None:
        assert getattr(script("write_audit"), table)() in self.PAGE

    def test_every_table_has_its_marks_and_is_filled(self) -> None:
        for name in (
            "ceilings",
            "honest",
            "gamed",
            "matching",
            "readers",
            "omission",
            "guesses",
            "break-even",
            "spread",
        ):
            _, _, rest = self.PAGE.partition(f"<!-- {name} -->\n")
            assert rest.partition(f"<!-- /{name} -->")[0].count("\n") > 2

    def test_what_it_claims_of_each_matching(self) -> None:
        made = script("write_audit")
        for reward in ("R3", "R5"):
            assert made.junk_helps(reward, "thresholded_hungarian", films=300)[0] == 0
        helped, most = made.junk_helps("R5", "hungarian", films=1200)
        assert helped > 0
        assert 0.05 < most <= 0.3
        assert made.better_box_costs("R3", "thresholded_hungarian", films=300)[0] == 0
        assert made.better_box_costs("R3", "greedy", films=600)[0] > 0
        assert made.half_box()["hungarian"][1] == 0.0

    def test_the_bonus_cancels_out_where_rewards_are_scaled(self) -> None:
        made = script("write_audit")
        scaled = [made.break_even(bonus, scaled=True, groups=4000) for bonus in (0.05, 1.0)]
        plain = [made.break_even(bonus, scaled=False, groups=4000) for bonus in (0.05, 1.0)]
        assert scaled[0] == pytest.approx(scaled[1], abs=0.02)
        assert 0.55 < scaled[1] < 0.65
        assert plain[1] > plain[0] + 0.4

    def test_a_weak_model_gets_no_signal_above_the_threshold(self) -> None:
        made = script("write_audit")
        lower = {"iou_threshold": 0.3, "matching": "thresholded_hungarian"}
        shares = [
            made.without_spread(0.2, name, groups=400, **given)
            for name, given in (("R5", {}), ("R5", lower), ("soft_f1", {}))
        ]
        assert shares == pytest.approx([0.58, 0.11, 0.0], abs=0.08)


def test_a_search_finds_what_r1_pays_for_the_order() -> None:
    searched = script("search_exploits")
    gain, case = searched.search(gr.get_reward("R1", box_format="qwen3-vl"), "another order", seconds=0.2)
    assert gain > 0
    assert sorted(map(str, case.before)) == sorted(map(str, case.after))
    assert "findings" in searched.shown(case)


def test_every_change_of_the_search_can_be_drawn() -> None:
    searched = script("search_exploits")
    for change in searched.CHANGES:
        gain, case = searched.search(gr.get_reward("R3", box_format="qwen3-vl"), change, 0.001, examples=4)
        assert (case is None) == (gain == 0.0)


def test_signal_is_simulated_on_answers_of_the_stated_quality() -> None:
    simulation = script("simulate_signal")
    weak, strong = 0.2, 0.9
    simulation.MODELS = {one: simulation.MODELS[one] for one in (weak, strong)}
    found = simulation.simulate(films=30)
    for mean_iou, (answered, groups) in found.items():
        assert answered.mean_iou == pytest.approx(mean_iou, abs=0.08)
        shares = {name: one.figures()["no_spread"] for name, one in groups.items()}
        assert shares["soft_f1"] <= shares["R4, τ 0.3"] <= shares["R4, τ 0.5"]
    # Weak models starve below τ, and R1 where all is right.
    assert found[weak][1]["R4, τ 0.5"].figures()["all_below_threshold"] > 0.2
    assert found[strong][1]["R1, τ 0.5"].figures()["all_perfect"] > 0.4
    part = simulation.page_part(found, 30)
    assert part.count("| R") >= 12
    begin, end = simulation.MARKS
    assert simulation.replace_part(f"a\n{begin}\nold\n{end}\nb", "new") == f"a\n{begin}\nnew\n{end}\nb"
    with pytest.raises(ValueError, match="once in the page"):
        simulation.replace_part("nothing", "new")


def test_the_table_of_trainers_keeps_the_rows_of_others() -> None:
    module = script("check_integrations")
    page = f"# A\n\n{module.BEGIN}\n{module.END}\nafter\n"
    rows = {
        one: list(module._row(one, "1.0", "torch 2", "2026-11-22", [f"load {one} | call"], failed).values())
        for one, failed in (("openrlhf", []), ("verl", ["a loop: none"]))
    }
    written = module.with_rows(page, rows)
    assert module.read_rows(written) == rows
    # in the order of the script, a bar in a cell escaped
    assert written.index("| verl | 1.0 |") < written.index("| openrlhf | 1.0 |")
    assert "load verl \\| call" in written
    assert module.with_rows(written, module.read_rows(written)) == written
    assert written.endswith("\nafter\n")
    assert module.BEGIN in module.PAGE.read_text(encoding="utf-8")
