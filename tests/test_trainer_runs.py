"""trainer_runs.py and qwen_numbers.py: what other trainers are started with, and what has to come out.

The trainings themselves are run by `make test-trainers`.
"""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scripts.checks.trainer_runs import LoggedStep, check_scores, check_steps, moved_weights
from tests.conftest import REPOSITORY
from tests.tables import table

ANSWERS = 32


def scores(count: int = ANSWERS, readable: int = ANSWERS, reward: float = 0.3) -> list[dict[str, Any]]:
    """What `score` writes of a run."""
    return [{"status": "boxes" if k < readable else "unparseable", "R4": reward} for k in range(count)]


@pytest.mark.parametrize(("changes", "steps", "message"), table("cases", "wrong_runs_are_named"))
def test_wrong_runs_are_named(changes: dict[str, Any], steps: list[list[float]], message: str | None) -> None:
    logged = [LoggedStep(*step) for step in steps]
    with nullcontext() if message is None else pytest.raises(AssertionError, match=message):
        check_steps(logged)
        check_scores(scores(**changes), logged)


def test_moved_weights_are_counted(tmp_path: Path) -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    before = {"a": np.zeros(2, np.float32), "b": np.zeros(2, np.float32)}
    files = [tmp_path / f"{k}.safetensors" for k in range(3)]
    changed = [before, {**before, "b": np.float32([0, 1])}, {**before, "b": np.float32([0, np.nan])}]
    for file, weights in zip(files, changed, strict=True):
        numpy.save_file(weights, file)
    assert moved_weights(files[0], files[0]) == (0, 2)
    assert moved_weights(files[0], files[1]) == (1, 2)
    with pytest.raises(AssertionError, match="not finite"):
        moved_weights(files[0], files[2])


def test_the_small_tokenizer_gets_qwens_numbers() -> None:
    pytest.importorskip("torch")
    from transformers import AutoTokenizer

    from scripts.checks.qwen_numbers import QWEN_NUMBERS, renumber

    before = AutoTokenizer.from_pretrained(REPOSITORY / "assets" / "tiny_vlm")
    after = renumber(before)
    assert {token: after.convert_tokens_to_ids(token) for token in QWEN_NUMBERS} == QWEN_NUMBERS
    # verl forbids numbers from the length on
    assert len(after) == max(QWEN_NUMBERS.values()) + 1
    text = '<|im_start|>assistant\n```json\n[\n\t{"bbox_2d": [8, 16, 40, 64], "label": "mass"}\n]\n```<|im_end|>'
    assert after.tokenize(text) == before.tokenize(text)
    assert after.decode(after(text)["input_ids"]) == text
    assert (after.eos_token, after.pad_token_id) == ("<|im_end|>", QWEN_NUMBERS["<|endoftext|>"])
