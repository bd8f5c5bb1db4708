"""What a study's report says and shows."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="needs the eval extra")
pytest.importorskip("jinja2", reason="needs the eval extra")

from grounding_rewards.study.audited import audit_arms
from grounding_rewards.study.findings import Findings, find
from grounding_rewards.study.page import plots, study_page
from grounding_rewards.study.report import (
    as_json,
    drawn_images,
    print_report,
    render_latex,
    render_markdown,
    write_report,
)
from grounding_rewards.study.results import ArmKey, read_study
from grounding_rewards.study.rulers import RULERS
from grounding_rewards.study.tables import matrix_rows
from grounding_rewards.study.words import reward_text, summary
from tests.study.fake_studies import ARMS, Arm, write_study

SCHEDULE = {"iou_threshold": {"schedule": "linear", "from": 0.1, "to": 0.5, "over": 0.4}}


def found_in(folder, arms, **more) -> Findings:
    return find(read_study(write_study(folder, arms, **more)), resamples=200)


def said(found: Findings, beginning: str) -> str:
    return next((sentence for sentence in summary(found) if sentence.startswith(beginning)), "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_study(tmp_path_factory.mktemp("study"), ARMS, seeds=3, count=16)


@pytest.fixture(scope="module")
def found(folder):
    return find(read_study(folder), resamples=200)


def arm(found: Findings, start: str, name: str):
    return next(one for one in found.arms if one.key == ArmKey(start, name))


def test_everything_is_written(tmp_path):
    folder = write_study(tmp_path / "study", ARMS[:2], seeds=2, steps=(5,), count=6)
    write_report(folder, tmp_path / "out", resamples=50)
    names = sorted(path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.*"))
    assert names[:2] == ["plots/changes.pdf", "plots/changes.png"]
    assert names[-4:] == ["findings.json", "study.html", "study.md", "study.tex"]
    assert json.loads((tmp_path / "out" / "findings.json").read_text())["declared"]["reference"] == "R3"


def test_a_broken_study_overwrites_nothing(folder, tmp_path):
    other = shutil.copytree(folder, tmp_path / "study")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "study.md").write_text("before")
    (other / "images.json").unlink()
    with pytest.raises(ValueError, match=r"images\.json"):
        write_report(other, tmp_path / "out")
    assert (tmp_path / "out" / "study.md").read_text() == "before"


def test_an_unknown_metric_is_named(tmp_path):
    with pytest.raises(ValueError, match="Expected a ruler for the primary metric, got 'iou'"):
        find(read_study(write_study(tmp_path, ARMS[:2], seeds=2, metric="iou", count=4)))


def test_means_are_those_of_the_runs(found):
    one = arm(found, "strong", "R1")
    assert found.primary_of(one).value == pytest.approx(one.runs.mean())
    difference = found.primary_difference(one)
    assert difference.value == pytest.approx(one.runs.mean() - arm(found, "strong", "R3").runs.mean())
    at_start = found.starts["strong"]["test"]["mean_iou"].value
    assert found.primary_difference(one, start=True).value == pytest.approx(one.runs.mean() - at_start)
    assert one.learning.mean[[0, -1]] == pytest.approx([at_start, one.runs.mean()])
    assert one.learning.steps.tolist() == [0, 10, 20]


def test_better_arms_are_said_to_be_better(found):
    sentence = said(found, "From the strong start, better than R3")
    assert "soft_f1 (+0." in sentence
    assert "worse than R3: R1 (-0." in sentence


def test_arms_alike_do_not_differ_beyond_noise(tmp_path):
    found = found_in(tmp_path, [Arm(name, error=0.1, spread=0.03) for name in ("R3", "R1")], seeds=3, steps=(5,))
    assert "no reward differs from R3 beyond noise" in said(found, "From the start, no reward")
    assert all(one.holm_reference > 0.05 for one in found.arms if one.against_reference)
    assert said(found, "Open from the start")


def test_the_same_answers_are_no_difference(tmp_path):
    folder = write_study(tmp_path, [Arm("R3"), Arm("R4")], seeds=2, count=8)
    for seed in range(2):
        twin = json.loads((folder / "results" / f"strong--R3--seed{seed}.json").read_text())
        (folder / "results" / f"strong--R4--seed{seed}.json").write_text(json.dumps({**twin, "arm": "R4"}))
    found = find(read_study(folder), resamples=50)
    for metrics in arm(found, "strong", "R4").against_reference.values():
        for key, one in metrics.items():
            assert one.value == 0, key
            assert one.p == 1, key


def test_seeds_may_be_numbered_otherwise(tmp_path):
    other = write_study(tmp_path, ARMS[:2], steps=(5,), count=8)
    found = find(read_study(other), resamples=50)
    files = sorted((other / "results").glob("strong--R1--seed*.json"))
    texts = [path.read_text() for path in files]
    for path, text, seed in zip(files, texts[1:] + texts[:1], (0, 1, 2), strict=True):
        path.write_text(json.dumps({**json.loads(text), "seed": seed}))
    again = find(read_study(other), resamples=50)
    one, two = (arm(one, "strong", "R1") for one in (found, again))
    assert found.primary_difference(one) == pytest.approx(again.primary_difference(two), rel=1e-9)
    assert one.interquartile == pytest.approx(two.interquartile)


@pytest.mark.parametrize(
    ("soft", "thresholded", "answer"),
    [
        # edges off by so much of a box; the weak start's are by 0.4
        (0.1, 0.4, "So yes: with that threshold nothing is learned that can be shown, and rewards without a threshold"),
        (0.1, 0.25, "So no, they do not starve, but others teach more."),
        (0.2, 0.2, "So no: they do not starve, and nothing shows that other rewards teach more."),
        (0.4, 0.4, "So nothing is shown to be learned under that threshold, nor that other rewards do better."),
    ],
)
def test_whether_thresholds_starve_is_answered_either_way(tmp_path, soft, thresholded, answer):
    arms = [
        Arm("R3", "weak", error=thresholded, spread=0.002, junk=0.5, zero=0.9),
        Arm("soft_f1", "weak", error=soft, spread=0.002, junk=0.5, zero=0.0),
    ]
    found = found_in(tmp_path, arms, seeds=3, steps=(5,), count=32)
    sentence = said(found, "Do thresholds starve from the start?")
    assert answer in sentence
    assert "90 % of their groups had no spread" in sentence


def test_families_are_told_apart(found):
    weak = {one.family: [key.arm for key in one.arms] for one in found.contrasts["weak"]}
    assert weak == {"thresholded": ["R3"], "scheduled": ["scheduled"], "without a threshold": ["soft_f1"]}
    strong = {one.family: [key.arm for key in one.arms] for one in found.contrasts["strong"]}
    # controls are of no family
    assert strong == {"thresholded": ["R3", "R1"], "without a threshold": ["soft_f1"]}


def test_a_control_that_gains_is_said(found):
    assert "gained too: so much is not owed" in said(found, "Controls from the strong start")


def test_less_is_better_where_less_is_better(tmp_path):
    arms = [Arm("R3", junk=1.2), Arm("R1", junk=0.02)]
    found = found_in(tmp_path, arms, seeds=5, metric="hallucination_rate", count=32, steps=(5,))
    assert found.primary_difference(arm(found, "strong", "R1")).value < 0
    assert "better than R3: R1 (-0." in said(found, "From the start, better")


def test_own_rewards_are_marked_in_the_matrix(found):
    rows = {row[0].split(" ")[0]: row for row in matrix_rows(found)[1:6]}
    names = list(RULERS)
    assert rows["R1"][1 + names.index("reward_R1")].startswith("(")
    assert not rows["R1"][1 + names.index("mean_iou")].startswith("(")
    assert found.trained == {"reward_R1", "reward_R3", "reward_soft_f1"}


def test_what_is_missing_is_said(tmp_path):
    other = write_study(tmp_path, ARMS[:3], steps=(5,), count=4)
    for seed in (1, 2):
        (other / "results" / f"strong--R1--seed{seed}.json").unlink()
    sentence = said(find(read_study(other), resamples=50), "Not finished")
    assert "2 planned runs without a result: strong--R1--seed1 and strong--R1--seed2" in sentence
    assert "too few runs to say anything of R1" in sentence


def test_every_number_of_the_text_is_of_the_findings(found):
    """Other numbers, other text: nothing is typed."""
    other = replace(found, seed_variance=4 * found.seed_variance)
    assert render_markdown(found) != render_markdown(other)


def test_latex_needs_booktabs_alone(found):
    text = render_latex(found)
    assert text.count("\\toprule") == text.count("\\bottomrule") == 1
    body = [line for line in text.splitlines() if line.endswith("\\\\")]
    assert {line.count("&") for line in body} == {4}
    assert "soft\\_f1" in text
    assert "_" not in text.replace("\\_", "")


def test_numbers_are_json(found):
    content = as_json(found)
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert len(content["arms"]) == len(ARMS)


def test_every_plot_is_drawn(found, tmp_path):
    drawn = plots(found)
    assert {"differences", "changes", "matrix", "learning", "profiles", "reward", "frac_reward_zero_std"} <= set(drawn)
    for one in drawn.values():
        assert "<svg" in one.svg()


def test_a_metric_without_images_has_no_profile(tmp_path):
    found = found_in(tmp_path, ARMS[:2], seeds=2, count=6, metric="sensitivity_1", steps=(5,))
    assert "profiles" not in plots(found)
    assert math.isfinite(found.detectable(2))


def test_images_without_an_image_have_no_gallery(found):
    assert study_page(found, {}, {}).gallery == []


def test_images_are_shown_with_the_answers_of_every_model(found):
    image = pytest.importorskip("PIL.Image", reason="needs pillow").new("L", (20, 20))
    page = study_page(found, {}, {"image-3": image, "image-5": image})
    assert [[name for name, _ in annotated.answers] for annotated in page.gallery] == [
        [
            *("the strong start", "R3, strong start", "R1, strong start", "soft_f1, strong start"),
            *("constant, strong start", "sft, strong start"),
            *("the weak start", "R3, weak start", "soft_f1, weak start", "scheduled, weak start"),
        ]
    ] * 2
    # In the order of the set, and one of them has no finding.
    assert [annotated.answers[0][1].id for annotated in page.gallery] == ["image-3", "image-5"]


def test_patients_images_are_not_looked_for(found):
    sets = {"test": {"dataset": "somewhere/images", "split": "test"}}
    assert drawn_images(replace(found.study, plan={"sets": sets})) == {}


@pytest.mark.parametrize(
    ("reward", "text"),
    [
        (None, "supervised"),
        ({"name": "R3", "kwargs": {}}, "R3"),
        ({"name": "R3", "kwargs": {"beta": 1}}, 'R3 {"beta": 1}'),
        ({"name": ["R3", "format_only"]}, "R3 + format_only"),
    ],
)
def test_rewards_are_named_with_their_parameters(reward, text):
    assert reward_text(reward) == text


def test_rewards_are_audited_on_the_images_of_the_study(tmp_path):
    arms = [Arm("R3"), Arm("late", reward={"name": "R3", "kwargs": SCHEDULE}), Arm("sft", reward=None, role="control")]
    study = read_study(write_study(tmp_path, arms, seeds=2, count=6, steps=(5,)))
    flagged = audit_arms(study)
    assert set(flagged) == {ArmKey("strong", "R3"), ArmKey("strong", "late")}
    # at the end of its schedule it is R3
    assert flagged[ArmKey("strong", "late")] == flagged[ArmKey("strong", "R3")]
    assert "all readers at once" in {one.policy for one in flagged[ArmKey("strong", "R3")]}


def test_a_report_imports_no_reward_that_the_folder_names(tmp_path, monkeypatch):
    """The folder of a study may be somebody else's, and hold a module of that name."""
    (tmp_path / "theirs.py").write_text("raise SystemExit('imported')", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    arms = [Arm("R3"), Arm("own", reward={"name": "theirs.Reward", "kwargs": {}})]
    study = read_study(write_study(tmp_path / "study", arms, seeds=2, count=6, steps=(5,)))
    assert set(audit_arms(study)) == {ArmKey("strong", "R3")}


def test_the_terminal_shows_tables_and_words(found, capsys):
    console = pytest.importorskip("rich.console").Console(width=200)
    print_report(found, console)
    printed = capsys.readouterr().out
    assert "soft_f1" in printed
    assert "Do thresholds starve" in printed
    assert np.isfinite(found.seed_variance)
