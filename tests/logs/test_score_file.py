"""Scoring of files: order, numbers, several processes, what is wrong with a row."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import pytest

from grounding_rewards import cli
from grounding_rewards.logs import score_file as score
from grounding_rewards.logs.score_file import reward_pairs, score_file
from grounding_rewards.parsing.space_check import SpaceWarning
from grounding_rewards.rewards.grounding import get_reward
from tests.conftest import write_lines

SHARED = Path(__file__).parents[3] / "shared" / "data" / "completions" / "completions.jsonl"
NAMES = ("R1", "R2", "R3", "R4", "R5")


def rows(count: int) -> list[dict[str, Any]]:
    texts = ['[{"bbox_2d": [0, 0, 500, 400], "label": "mass"}]', "[]", "no idea", '[{"bbox_2d": [1, 2, 3]}]']
    references: list[Any] = [[[0, 0, 50, 50]], []]
    return [
        {"id": f"image {k}", "completion": texts[k % 4], "boxes": references[k % 3 > 0], "width": 100, "height": 100}
        for k in range(count)
    ]


def read(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    import pyarrow.parquet as parquet

    return [{**row, "rejected": dict(row["rejected"])} for row in parquet.read_table(path).to_pylist()]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize("processes", [1, 2])
def test_rows_come_out_in_order_with_what_details_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, processes: int
) -> None:
    monkeypatch.setattr(score, "_CHUNK", 32)
    given = rows(200)
    rewards = [get_reward(name, box_format="qwen3-vl") for name in NAMES]
    done: list[int] = []
    out = tmp_path / f"scored{suffix}"
    path = write_lines(tmp_path / "log.jsonl", given)
    summary = score_file(path, out, rewards, processes=processes, on_progress=done.append)
    scored = read(out)
    assert [(row["row"], row["id"]) for row in scored] == [(k + 1, f"image {k}") for k in range(200)]
    columns = {name: [row[name] for row in given] for name in ("boxes", "width", "height")}
    texts = [row["completion"] for row in given]
    for reward in rewards:
        name = reward.__name__
        for row, one in zip(scored, reward.details(texts, **columns), strict=True):
            explained = one.explanation
            assert row[name] == one.reward
            assert row[f"{name}/reason"] == one.reason
            assert (row[f"{name}/tp"], row[f"{name}/fp"], row[f"{name}/fn"]) == (
                explained.tp,
                explained.fp,
                explained.fn,
            )
            assert (row[f"{name}/f_beta"], row[f"{name}/quality"]) == (explained.f_beta, explained.quality)
            assert (row[f"{name}/precision"], row[f"{name}/recall"]) == (explained.precision, explained.recall)
            assert row["status"] == one.parsed.status
            assert row["rejected"] == one.parsed.rejected
            assert row["boxes"] == len(one.parsed.boxes)
        assert summary.means[name] == pytest.approx(sum(row[name] for row in scored) / 200)
    assert summary.completions == done[-1] == 200
    assert summary.statuses == {"boxes": 50, "empty": 50, "truncated": 0, "unparseable": 100}
    assert len(done) > 5
    assert [file.name for file in tmp_path.iterdir() if "unfinished" in file.name] == []


def test_ids_of_any_kind(tmp_path: Path) -> None:
    given = rows(4)
    del given[0]["id"]
    given[1]["id"] = 7
    # half a character, as a broken writer leaves it
    given[2]["id"] = "\ud83d"
    path = write_lines(tmp_path / "log.jsonl", given)
    rewards = [get_reward("R3", box_format="qwen3-vl")]
    score_file(path, tmp_path / "scored.jsonl", rewards)
    assert [row["id"] for row in read(tmp_path / "scored.jsonl")] == [None, "7", "\ud83d", "image 3"]
    score_file(path, tmp_path / "scored.parquet", rewards)
    assert [row["id"] for row in read(tmp_path / "scored.parquet")] == [None, "7", "\\ud83d", "image 3"]


def test_ground_truth_in_one_string_and_a_format_per_row(tmp_path: Path) -> None:
    packed = {"boxes": [[0, 0, 50, 50]], "width": 100, "height": 100, "box_format": "qwen3-vl"}
    row = {"response": '[{"bbox_2d": [0, 0, 500, 400]}]', "ground_truth": json.dumps(packed)}
    path = write_lines(tmp_path / "log.jsonl", [row])
    assert score_file(path, tmp_path / "scored.jsonl", [get_reward("R3")]).means == {"R3": 0.8}


def test_logs_of_other_tools_are_scored(tmp_path: Path) -> None:
    """verl's right answer as the reference, and a batch of a server."""
    text, size = '[{"bbox_2d": [0, 0, 500, 500]}]', {"width": 100, "height": 100}
    batch = {"custom_id": "a", "response": {"body": {"choices": [{"message": {"role": "assistant", "content": text}}]}}}
    for row in ({"input": "Mark", "output": text, "gts": text, **size}, {**batch, "boxes": [[0, 0, 50, 50]], **size}):
        path = write_lines(tmp_path / "1.jsonl", [row])
        summary = score_file(path, tmp_path / "scored.jsonl", [get_reward("R3", box_format="qwen3-vl")])
        assert summary.means == {"R3": 1.0}


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"boxes": [[5, 5, 1, 1]]}, r"line 31 of '.*log.jsonl': Expected finite boxes .* got \[\[5, 5, 1, 1\]\]\."),
        ({"boxes": None}, r"line 31 of '.*log.jsonl': Expected a column `boxes`"),
        ({"boxes": "none"}, r"line 31 of '.*log.jsonl': Expected a list of \[x1, y1, x2, y2\]"),
        ({"width": -4}, r"line 31 of '.*log.jsonl': Expected .*width"),
        ({"completion": None}, r"Expected a completion in column completion .* in 1 row: line 31 of '.*log.jsonl'"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, processes: int, change: dict[str, Any], message: str) -> None:
    given = rows(40)
    given[30] |= change
    path, out = write_lines(tmp_path / "log.jsonl", given), tmp_path / "scored.jsonl"
    out.write_text("of before\n", encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        score_file(path, out, [get_reward("R3", box_format="qwen3-vl")], processes=processes)
    # What was there stays, and nothing half-done is left.
    assert out.read_text(encoding="utf-8") == "of before\n"
    assert len(list(tmp_path.iterdir())) == 2


def test_what_concerns_no_single_row_is_said_as_it_is(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "log.jsonl", rows(3))
    with pytest.raises(ValueError, match=r"line 1 of .*: Expected a box format for reward R3, got none"):
        score_file(path, tmp_path / "scored.jsonl", [get_reward("R3")])


@pytest.mark.parametrize(
    ("out", "processes", "message"),
    [
        ("scored.csv", 1, r"Expected a file that ends in .parquet or .jsonl for `out`"),
        ("scored.jsonl", 0, "Expected at least 1 for `processes`, got 0"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path: Path, out: str, processes: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        score_file(
            write_lines(tmp_path / "log.jsonl", rows(1)), tmp_path / out, [get_reward("R3")], processes=processes
        )


def test_the_completions_are_not_overwritten(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "log.jsonl", rows(3))
    before = path.read_bytes()
    for out in (path, tmp_path / ".." / tmp_path.name / "log.jsonl"):
        with pytest.raises(ValueError, match="Expected another file than the completions for `out`"):
            score_file(path, out, [get_reward("R3", box_format="qwen3-vl")])
    assert path.read_bytes() == before


def test_rewards_that_do_not_go_together_are_no_fault_of_a_row(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "log.jsonl", rows(3))
    with pytest.raises(ValueError, match=r"^Expected one or more rewards of different names"):
        score_file(path, tmp_path / "scored.jsonl", [get_reward("R3", box_format="qwen3-vl")] * 2)


def test_the_folder_of_the_output_is_made(tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder" / "scored.parquet"
    score_file(write_lines(tmp_path / "log.jsonl", rows(3)), out, [get_reward("R3", box_format="qwen3-vl")])
    assert out.is_file()


@pytest.mark.parametrize("processes", [1, 2])
def test_a_wrong_space_is_noticed_once(tmp_path: Path, processes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score, "_CHUNK", 32)
    gt = [[100 + 9 * k, 200 + 7 * k, 700 + 9 * k, 900 + 7 * k] for k in range(100)]
    given = [
        {"text": json.dumps([{"bbox_2d": box}]), "boxes": [box], "width": 2000, "height": 2000, "id": k}
        for k, box in enumerate(gt)
    ]
    path = write_lines(tmp_path / "log.jsonl", given)
    with warnings.catch_warnings():
        warnings.simplefilter("error", SpaceWarning)
        rewards = [get_reward("R3", box_format="qwen3-vl"), get_reward("R4", box_format="qwen3-vl")]
        summary = score_file(path, tmp_path / "scored.jsonl", rewards, processes=processes)
    assert len(summary.warnings) == 1
    assert summary.warnings[0].startswith("R3: ")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = write_lines(tmp_path / "log.jsonl", rows(8)), tmp_path / "scored.parquet"
    command = ["score", str(path), "--rewards", "R3", "R5", "--box-format", "qwen3-vl", "--out", str(out)]
    assert cli.main(command) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("8 completions in ")
    assert "boxes 2, empty 2, truncated 0, unparseable 4" in printed
    assert "mean R3 " in printed
    assert len(read(out)) == 8
    # IoU 0.8 is no match any more.
    assert cli.main([*command, "--reward-kwargs", '{"iou_threshold": 0.9}']) == 0
    assert read(out)[0]["R3"] == 0


def test_parameters_of_each_reward(tmp_path: Path) -> None:
    path, out = write_lines(tmp_path / "log.jsonl", rows(8)), tmp_path / "scored.jsonl"
    command = ["score", str(path), "--rewards", "R3", "random", "--box-format", "qwen3-vl", "--out", str(out)]
    assert cli.main([*command, "--reward-kwargs", '[{"iou_threshold": 0.9}, {"seed": 3}]']) == 0
    assert read(out)[0]["R3"] == 0
    # the number that training would have given: the id of the row decides
    control = get_reward("random", seed=3, box_format="qwen3-vl")
    columns = {name: [row[name] for row in rows(8)] for name in ("id", "boxes", "width", "height")}
    assert [row["random"] for row in read(out)] == control([row["completion"] for row in rows(8)], **columns)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--reward-kwargs", "[1]"], "Expected a mapping for reward_kwargs, got [1]"),
        (["--rewards", "R3", "R4", "--reward-kwargs", "[{}]"], "a list of 2 mappings for reward_kwargs"),
        (
            ["--rewards", "R3", "R4", "--reward-kwargs", "[{},"],
            "Expected a JSON object for --reward-kwargs, got '[{},'",
        ),
        (["--rewards", "R3", "random", "--reward-kwargs", '{"beta": 1}'], "for reward `random`, got 'beta'"),
        (["--reward-kwargs", "{"], "Expected a JSON object for --reward-kwargs, got '{'"),
        (["--reward-kwargs", '{"gamma": 1}'], "gamma"),
        (["--box-format", "mine"], "mine"),
        (["--text-column", "said"], "Expected a column said with the completions"),
    ],
)
def test_wrong_options_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    path = write_lines(tmp_path / "log.jsonl", rows(1))
    out = str(tmp_path / "scored.jsonl")
    given = [*options, *([] if "--rewards" in options else ["--rewards", "R3"])]
    given += [] if "--box-format" in options else ["--box-format", "qwen3-vl"]
    assert cli.main(["score", str(path), "--out", out, *given]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.skipif(not SHARED.is_file(), reason="the completions of real models are not here")
def test_completions_of_real_models(tmp_path: Path) -> None:
    """Each scored against the boxes that a person read in it, in its own space: those of Qwen in thousandths."""
    given = []
    for line in SHARED.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["family"].startswith("Qwen3") and row["status"] in ("boxes", "explicit_empty") and not row["ambiguous"]:
            boxes = [box for box in row["boxes"] if box[0] < box[2] and box[1] < box[3]]
            given.append({"id": row["id"], "text": row["text"], "boxes": boxes, "width": 1000, "height": 1000})
    assert given
    out = tmp_path / "scored.jsonl"
    summary = score_file(write_lines(tmp_path / "log.jsonl", given), out, [get_reward("R3", box_format="qwen3-vl")])
    assert summary.completions == len(given)
    assert all(math.isfinite(row["R3"]) for row in read(out))
    assert sum(row["R3/tp"] for row in read(out)) > 0


class TestPairs:
    """How alike two rewards order the completions."""

    @pytest.mark.parametrize(
        ("a", "b", "correlation", "rows"),
        [
            # by hand: any rescaling that keeps the order is the same order
            ([0.1, 0.2, 0.3], [1.0, 4.0, 9.0], 1.0, ()),
            ([0.1, 0.2, 0.3], [3.0, 2.0, 1.0], -1.0, (1, 3)),
            # ties share their mean rank: 1, 2.5, 2.5 against 1, 2, 3
            ([0.0, 1.0, 1.0], [0.0, 1.0, 2.0], 0.866025403784, (2, 3)),
            # one of them pays all alike
            ([0.5, 0.5], [0.0, 1.0], None, (1, 2)),
        ],
    )
    def test_by_hand(self, a, b, correlation, rows):
        (pair,) = reward_pairs({"A": a, "B": b})
        assert (pair.correlation, pair.rows) == (correlation, rows)

    def test_they_are_scipys_of_what_is_written(self, tmp_path):
        from scipy.stats import spearmanr

        texts = ["[]", '[{"bbox_2d": [0, 0, 500, 500]}]', '[{"bbox_2d": [0, 0, 800, 900]}]', "?"]
        row = {"boxes": [[0, 0, 50, 50]], "width": 100, "height": 100}
        log = tmp_path / "log.jsonl"
        write_lines(log, [{**row, "completion": text} for text in texts])
        rewards = [get_reward(name, box_format="qwen3-vl") for name in ("R1", "R3", "soft_f1")]
        summary = score_file(log, tmp_path / "out.jsonl", rewards)
        written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
        assert [(pair.a, pair.b) for pair in summary.pairs] == [("R1", "R3"), ("R1", "soft_f1"), ("R3", "soft_f1")]
        for pair in summary.pairs:
            expected = spearmanr([one[pair.a] for one in written], [one[pair.b] for one in written]).statistic
            assert pair.correlation == pytest.approx(expected, abs=1e-9)
        assert json.loads(json.dumps(summary.to_dict()))["pairs"][0]["a"] == "R1"
