"""docs/robustness.md says what the corruptions do, and has a line for everything that is measured."""

import re
import runpy
from typing import Any

import pytest

from grounding_rewards.models.robustness import CORRUPTIONS, EPSILONS, STRENGTHS
from scripts.docs.page_parts import between, marks_of
from tests.conftest import REPOSITORY


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(REPOSITORY / "scripts" / "docs" / "measure_robustness.py"))


@pytest.fixture(scope="module")
def page() -> str:
    return (REPOSITORY / "docs" / "robustness.md").read_text(encoding="utf-8")


def test_the_table_of_corruptions_is_up_to_date(script: dict[str, Any], page: str) -> None:
    assert between(page, marks_of("what corruptions do")).strip() == script["meanings"]()


def test_every_change_was_measured(page: str) -> None:
    measured = between(page, marks_of("measured"))
    rows = {cells[0]: cells[1:] for line in measured.splitlines() if len(cells := line.strip("| ").split(" | ")) > 2}
    attacked = f"pgd, ε {', '.join(f'{round(epsilon * 255)}' for epsilon in EPSILONS[1:])} / 255"
    for name, count in {**dict.fromkeys(CORRUPTIONS, len(STRENGTHS)), attacked: len(EPSILONS) - 1}.items():
        assert all(re.fullmatch(r"[01]\.\d\d", one) for one in rows[name][:count]), name
