"""Files of options that are built on one another: which value wins, and what is refused."""

import json
from pathlib import Path

import pytest

from grounding_rewards.common.config_files import find_shipped, read_config
from tests.tables import table


@pytest.fixture
def folder(tmp_path):
    pytest.importorskip("yaml", reason="needs PyYAML, which the core goes without")

    def write(**texts):
        for name, text in texts.items():
            path = tmp_path / f"{name.replace('__', '/')}.yaml"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return tmp_path

    return write


@pytest.mark.parametrize(("texts", "expected"), table("common/config_files", "which_value_wins"))
def test_which_value_wins(folder, texts, expected):
    assert read_config(folder(**texts) / "a.yaml") == json.loads(expected)


def test_a_base_that_comes_with_the_package(folder, monkeypatch):
    """From any folder, as commands find such names; a file beside goes first."""
    root = folder(a="{base: configs/demo/grpo.yaml, reward: R1}")
    monkeypatch.chdir(root)
    options = read_config(root / "a.yaml")
    assert (options["reward"], options["num_generations"]) == ("R1", 8)
    folder(a="{base: configs/demo/grpo.yaml, reward: R1}", configs__x="")
    (root / "configs" / "demo").mkdir()
    (root / "configs" / "demo" / "grpo.yaml").write_text("{num_generations: 3}", encoding="utf-8")
    assert read_config(root / "a.yaml") == {"num_generations": 3, "reward": "R1"}


def test_later_files_win_over_earlier_ones_and_their_bases(folder):
    root = folder(a="{base: b.yaml, x: 1}", b="{x: 0, y: 0}", c="{y: 3}")
    assert read_config([root / "a.yaml", root / "c.yaml"]) == {"x": 1, "y": 3}
    assert read_config([root / "c.yaml", root / "a.yaml"]) == {"x": 1, "y": 0}
    assert read_config([]) == {}


@pytest.mark.parametrize(("texts", "message"), table("common/config_files", "refused"))
def test_refused(folder, texts, message):
    with pytest.raises(ValueError, match=message):
        read_config(folder(**texts) / "a.yaml")


def test_an_unknown_option_names_its_file(folder):
    root = folder(a="{base: b.yaml, loss_type: grpo}", b="lerning_rate: 1")
    with pytest.raises(ValueError, match=r"train` in .*b\.yaml, got lerning_rate"):
        read_config(root / "a.yaml", option_names=["learning_rate", "loss_type"], command="train")


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A working folder that has no configurations of its own."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        *("configs/demo/grpo.yaml", "configs/accelerate/cpu_1.yaml", "configs/study/quick.yaml"),
        *("configs/lmms_eval/grounding.yaml", "configs/lmms_eval/utils.py", "assets/tiny_vlm"),
        *("assets/tiny_vlm/model.safetensors", "assets/tiny_vlm/chat_template.jinja"),
    ],
)
def test_what_comes_with_the_package_is_found_by_its_name(elsewhere, name):
    assert Path(find_shipped(name)).is_absolute()
    assert Path(find_shipped(name)).exists()
    assert find_shipped(Path(name)) == find_shipped(name)


def test_the_working_directory_goes_first(elsewhere):
    mine = Path("configs/demo/grpo.yaml")
    mine.parent.mkdir(parents=True)
    mine.touch()
    assert find_shipped(mine) == str(mine)


@pytest.mark.parametrize("name", table("common/config_files", "other_names"))
def test_other_names_are_left_as_they_are(elsewhere, name):
    assert find_shipped(name) == name
