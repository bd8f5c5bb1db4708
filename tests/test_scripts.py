"""Scripts that make what the repository holds."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"


@pytest.mark.parametrize("name", ["fuzz_parsing.py", "write_formats.py"])
def test_help_teaches(name):
    done = subprocess.run([sys.executable, SCRIPTS / name, "--help"], capture_output=True, text=True, check=True)
    assert f"python scripts/{name}" in done.stdout


def test_the_table_of_formats_is_up_to_date():
    subprocess.run([sys.executable, SCRIPTS / "write_formats.py", "--check"], check=True)
