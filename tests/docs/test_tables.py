"""The parts of pages that scripts/docs/write_tables.py writes are up to date, and complete."""

import dataclasses
import doctest

import pytest

for _library in ("nbclient", "trl"):
    pytest.importorskip(_library, reason="needs the docs and train extras")

from grounding_rewards.cli import COMMANDS, TRAINING, command_app  # noqa: E402
from grounding_rewards.doctor.context import CHECKS  # noqa: E402
from grounding_rewards.sources import list_datasets  # noqa: E402
from tests.conftest import REPOSITORY  # noqa: E402
from tests.test_scripts import script  # noqa: E402

DOCS = REPOSITORY / "docs"
TABLES = script("write_tables")


@pytest.mark.parametrize("name", TABLES.PARTS)
def test_a_written_part_is_up_to_date(name: str) -> None:
    if name == "configuration" and TABLES.known_versions() not in (DOCS / "configuration.md").read_text("utf-8"):
        pytest.skip("lists the options of other versions of TRL and transformers")
    assert TABLES.write_part(name, check=True) is None


def test_every_command_option_key_dataset_and_check_is_listed() -> None:
    from grounding_rewards.training import arguments

    of_training = (arguments.GroundingArguments, arguments.SupervisedArguments, arguments.GRPOArguments)
    listed = {
        "commands": {
            *(f"`{option.name}`" for name in COMMANDS for option in command_app(name).assemble_argument_collection()),
            *(f"## {name}" for name in (*COMMANDS, *TRAINING)),
        }
        - {"`*`"},
        "configuration": {f"`{field.name}`" for of in of_training for field in dataclasses.fields(of) if field.init},
        "datasets": {f"## {name}" for name in list_datasets()},
        "doctor": {f"`{name}`" for name in CHECKS},
    }
    for page, words in listed.items():
        text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
        assert [word for word in sorted(words) if word not in text] == [], page


def test_every_option_has_a_meaning() -> None:
    lines = (DOCS / "commands.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("| `") and line.endswith("|  |")] == []


def test_the_notebook_prints_what_is_kept() -> None:
    import nbformat

    kept = nbformat.read(TABLES.NOTEBOOK, as_version=4)
    for cell, again in zip(kept.cells, TABLES.run_notebook().cells, strict=True):
        texts = [[text for output in of.get("outputs", ()) for text in TABLES.printed(output)] for of in (cell, again)]
        assert texts[0] == texts[1], cell.source


def test_examples_of_the_script_hold() -> None:
    result = doctest.testmod(TABLES)
    assert (result.failed, result.attempted) == (0, 3)
