"""`grounding-rewards plugin`: what it writes is imported in a fresh interpreter, as the trainer would."""

import subprocess
import sys

import pytest

from grounding_rewards.cli import main
from grounding_rewards.integrations.plugin_files import TRAINERS, plugin
from tests.integrations.hard_cases import LOOSE, ONE, Case
from tests.tables import table

TRUTH = Case(LOOSE, ONE).ground_truth
KWARGS = '{"beta": 1.0, "box_format": {"syntax": "json", "space": "norm1000"}}'

# What is there before a trainer does what `CALLS` has for it.
START = f"""
import asyncio, importlib.util, sys, types
LOOSE, TRUTH, PATH = {LOOSE!r}, {TRUTH!r}, sys.argv[1]
def load(name, run_as=None):
    spec = importlib.util.spec_from_file_location(name, PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
"""
CALLS = table("integrations/cases", "calls")


def written(trainer, tmp_path, capsys):
    path = tmp_path / "boxes.py"
    assert main(["plugin", trainer, "--reward", "R3", "--reward-kwargs", KWARGS, "--out", str(path)]) == 0
    shown = capsys.readouterr()
    assert f"wrote {path}" in shown.err
    return path, shown.out


@pytest.mark.parametrize("trainer", CALLS)
def test_a_file_is_called_as_its_trainer_calls_it(trainer, tmp_path, capsys):
    if trainer == "openrlhf":
        pytest.importorskip("torch")
    path, lines = written(trainer, tmp_path, capsys)
    assert path.stem in lines
    call = [sys.executable, "-c", START + CALLS[trainer], str(path)]
    ran = subprocess.run(call, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert ran.returncode == 0, ran.stderr
    # 380 × 370 of 400 × 400: by hand
    assert float(ran.stdout) == pytest.approx(380 * 370 / 400**2, rel=1e-6)


@pytest.mark.parametrize("trainer", sorted(set(TRAINERS) - set(CALLS) - {"verl"}))
def test_a_file_without_its_trainer_says_nothing_when_it_is_imported(trainer, tmp_path, capsys):
    path, lines = written(trainer, tmp_path, capsys)
    source = path.read_text(encoding="utf-8")
    compile(source, str(path), "exec")
    assert 'if __name__ == "__main__":' in source
    # these two take the reward and its parameters from their own configuration
    assert '"R3"' in lines
    assert '"beta": 1.0' in lines


def test_the_line_for_hydra_has_keys_without_marks():
    # Hydra would take `\u00e4` for six characters.
    lines = plugin("verl", "R3", {"beta": 1.0, "box_format": {"syntax": "json", "no_finding": ["Unauffällig."]}}).lines
    assert (
        '\'+reward.custom_reward_function.reward_kwargs={reward: "R3", beta: 1.0, '
        'box_format: {syntax: "json", no_finding: ["Unauffällig."]}}\'' in lines
    )


def test_a_format_of_special_tokens_has_lines_of_its_own(tmp_path):
    for box_format, in_tokens in (("qwen2-vl", True), ("qwen3-vl", False)):
        assert ("GroundingRewardManager" in plugin("verl", "R4", {"box_format": box_format}).lines) == in_tokens
        easyr1 = plugin("easyr1", "R4", {"box_format": box_format}, tmp_path / "my rewards" / "boxes.py")
        assert "my rewards/boxes.py':compute_score" in easyr1.lines
        assert ("skip_special_tokens=false" in easyr1.lines) == in_tokens
    # EasyR1 took the option away in November 2025, and reads the type from the file.
    assert "reward_type" not in easyr1.lines
    assert 'REWARD_TYPE = "batch"' in easyr1.content


@pytest.mark.parametrize(
    ("words", "message"), table("integrations/cases", "what_cannot_work_is_refused_before_a_trainer_starts")
)
def test_what_cannot_work_is_refused_before_a_trainer_starts(words, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["plugin", *words]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
