"""Scoring of files: order, numbers, several processes, what is wrong with a row."""

import warnings
from pathlib import Path
from typing import Any

import pytest

from grounding_rewards import cli
from grounding_rewards.logs import score_file as score
from grounding_rewards.logs.score_file import score_file
from grounding_rewards.parsing.space_check import SpaceWarning
from grounding_rewards.rewards.grounding import get_reward
from tests.conftest import read_lines, write_lines
from tests.tables import table

NAMES = ("R1", "R2", "R3", "R4", "R5")
R3 = get_reward("R3", box_format="qwen3-vl")


def rows(count: int) -> list[dict[str, Any]]:
    texts = ['[{"bbox_2d": [0, 0, 500, 400], "label": "mass"}]', "[]", "no idea", '[{"bbox_2d": [1, 2, 3]}]']
    references: list[Any] = [[[0, 0, 50, 50]], []]
    return [
        {"id": f"image {k}", "completion": texts[k % 4], "boxes": references[k % 3 > 0], "width": 100, "height": 100}
        for k in range(count)
    ]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "log.jsonl", rows(8))


def test_rows_come_out_in_order_with_what_details_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score, "_CHUNK", 32)
    given = rows(200)
    rewards = [get_reward(name, box_format="qwen3-vl") for name in NAMES]
    done: list[int] = []
    out = tmp_path / "new" / "scored.jsonl"
    path = write_lines(tmp_path / "log.jsonl", given)
    summary = score_file(path, out, rewards, processes=2, on_progress=done.append)
    scored = read_lines(out)
    assert [(row["row"], row["id"]) for row in scored] == [(k + 1, f"image {k}") for k in range(200)]
    columns = {name: [row[name] for row in given] for name in ("boxes", "width", "height")}
    texts = [row["completion"] for row in given]
    for reward in rewards:
        name = reward.__name__
        for row, details in zip(scored, reward.details(texts, **columns), strict=True):
            assert (row[name], row[f"{name}/reason"]) == (details.reward, details.reason)
            for part in ("tp", "fp", "fn", "f_beta", "quality", "precision", "recall"):
                assert row[f"{name}/{part}"] == getattr(details, part)
            parsed = details.parsed
            assert (row["status"], row["rejected"], row["boxes"]) == (parsed.status, parsed.rejected, len(parsed.boxes))
        assert summary.means[name] == pytest.approx(sum(row[name] for row in scored) / 200)
    assert summary.completions == done[-1] == 200
    assert summary.statuses == {"boxes": 50, "empty": 50, "truncated": 0, "unparseable": 100}
    assert len(done) > 5
    assert [file.name for file in out.parent.iterdir()] == [out.name]


def test_ids_of_any_kind(tmp_path: Path) -> None:
    given = rows(4)
    del given[0]["id"]
    given[1]["id"] = 7
    # half a character, as a broken writer leaves it
    given[2]["id"] = "\ud83d"
    score_file(write_lines(tmp_path / "log.jsonl", given), tmp_path / "scored.jsonl", [R3])
    assert [row["id"] for row in read_lines(tmp_path / "scored.jsonl")] == [None, "7", "\ud83d", "image 3"]


@pytest.mark.parametrize(("change", "message"), table("logs/rows", "rows_that_cannot_be_scored"))
def test_a_wrong_row_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    given = rows(40)
    given[30] |= change
    path, out = write_lines(tmp_path / "log.jsonl", given), tmp_path / "scored.jsonl"
    out.write_text("of before\n", encoding="utf-8")
    for processes in (1, 2) if change == {"boxes": None} else (1,):
        with pytest.raises(ValueError, match=message):
            score_file(path, out, [R3], processes=processes)
    # What was there stays, and nothing half-done is left.
    assert out.read_text(encoding="utf-8") == "of before\n"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("out", "rewards", "message"),
    [
        ("scored.parquet", [R3], r"Expected a file that ends in .jsonl for `out`, .*lines=True\).to_parquet"),
        # The completions would be lost.
        ("log.jsonl", [R3], "Expected another file than the completions for `out`"),
        ("new/../log.jsonl", [R3], "Expected another file than the completions for `out`"),
        # No fault of a row.
        ("scored.jsonl", [R3, R3], r"^Expected one or more rewards of different names"),
        ("scored.jsonl", [get_reward("R3")], r"line 1 of .*: Expected a box format for reward R3, got none"),
    ],
)
def test_wrong_arguments_are_refused(log: Path, out: str, rewards: list[Any], message: str) -> None:
    before = log.read_bytes()
    (log.parent / "new").mkdir()
    with pytest.raises(ValueError, match=message):
        score_file(log, log.parent / out, rewards)
    if "for `out`" in message:
        # Its folder is a log too, and the file one of that.
        with pytest.raises(ValueError, match=message):
            score_file(log.parent, log.parent / out, rewards)
    # Nor is it, the next time, the file of scores beside it.
    with pytest.raises(ValueError, match="Expected another file"):
        score_file(log.parent, log.parent / "new.jsonl", [R3])
    assert log.read_bytes() == before


@pytest.mark.parametrize("processes", [1, 2])
def test_a_wrong_space_is_noticed_once(tmp_path: Path, processes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score, "_CHUNK", 32)
    gt = [[100 + 9 * k, 200 + 7 * k, 700 + 9 * k, 900 + 7 * k] for k in range(100)]
    size = {"width": 2000, "height": 2000}
    given = [{"completion": f'[{{"bbox_2d": {box}}}]', "boxes": [box], "id": k, **size} for k, box in enumerate(gt)]
    path = write_lines(tmp_path / "log.jsonl", given)
    with warnings.catch_warnings():
        warnings.simplefilter("error", SpaceWarning)
        rewards = [R3, get_reward("R4", box_format="qwen3-vl")]
        summary = score_file(path, tmp_path / "scored.jsonl", rewards, processes=processes)
    assert len(summary.warnings) == 1
    assert summary.warnings[0].startswith("R3: ")


def command(log: Path, *options: str) -> int:
    given = [*options, *(() if "--box-format" in options else ("--box-format", "qwen3-vl"))]
    return cli.main(["score", str(log), "--out", str(log.parent / "scored.jsonl"), *given])


def test_the_command(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("R3", "R3:iou_threshold=0.9", 'R5:{"beta": 2}', "random:seed=3")
    assert command(log, "--rewards", *words) == 0
    assert "boxes 2, empty 2, truncated 0, unparseable 4" in capsys.readouterr().out
    scored = read_lines(log.parent / "scored.jsonl")
    # IoU 0.8 is no match any more.
    assert [scored[0][name] for name in words[:2]] == [0.8, 0]
    # the number that training would have given: the id of the row decides
    control = get_reward("random", seed=3, box_format="qwen3-vl")
    columns = {name: [row[name] for row in rows(8)] for name in ("id", "boxes", "width", "height")}
    assert [row[words[3]] for row in scored] == control([row["completion"] for row in rows(8)], **columns)


@pytest.mark.parametrize(("options", "message"), table("logs/rows", "wrong_options_of_score"))
def test_wrong_options_are_refused(
    log: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert command(log, *options) == 2
    assert message in capsys.readouterr().err
    assert list(log.parent.iterdir()) == [log]
