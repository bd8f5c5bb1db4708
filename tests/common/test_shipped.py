"""Names of shipped configurations and of the small model, from a folder that has none of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from grounding_rewards.common.shipped import find_shipped, shipped_names


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        *("configs/demo/grpo.yaml", "configs/accelerate/cpu_1.yaml", "configs/study/quick.yaml"),
        *("configs/lmms_eval/grounding.yaml", "configs/lmms_eval/utils.py", "assets/tiny_vlm"),
        *("assets/tiny_vlm/model.safetensors", "assets/tiny_vlm/chat_template.jinja"),
    ],
)
def test_what_comes_with_the_package_is_found_by_its_name(name: str) -> None:
    assert Path(find_shipped(name)).is_absolute()
    assert Path(find_shipped(name)).exists()
    assert find_shipped(Path(name)) == find_shipped(name)


def test_the_working_directory_goes_first() -> None:
    mine = Path("configs/demo/grpo.yaml")
    mine.parent.mkdir(parents=True)
    mine.touch()
    assert find_shipped(mine) == str(mine)


@pytest.mark.parametrize(
    "name",
    [
        "Qwen/Qwen2.5-VL-3B-Instruct",  # on the hub
        "configs/mine.yaml",  # nowhere
        "configs/../pyproject.toml",  # not of these folders
        "tests/conftest.py",
        "/configs/demo/grpo.yaml",
        "",
    ],
)
def test_other_names_are_left_as_they_are(name: str) -> None:
    assert find_shipped(name) == name


def test_every_name_that_is_listed_is_found() -> None:
    names = shipped_names("configs/**/*.yaml")
    assert {"configs/demo/grpo.yaml", "configs/experiments/r1.yaml", "configs/accelerate/gpu_1.yaml"} <= set(names)
    assert all(Path(find_shipped(name)).is_file() for name in names)
