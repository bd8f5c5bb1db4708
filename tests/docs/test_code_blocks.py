"""What one copies from a page can be run: doctests run the Python, and the rest is held to the parsers here."""

import dataclasses
import json
import re
from functools import cache
from pathlib import Path

import pytest

from grounding_rewards.cli import COMMANDS, TRAINING, command_app
from tests.conftest import REPOSITORY
from tests.docs.blocks import CODE, FENCED, PAGES, blocks, inline_commands, ours, shell_commands

# Where a line leaves something out for the reader to fill in.
LEFT_OUT = {"...", "…"}
# Programs of others, which have options of their own.
FOREIGN = {"accelerate", "cd", "git", "hf", "lmms-eval", "pip", "sbatch", "swift", "trl", "uv"}
OF_OTHERS = {"--KEY", "--key", "--kill-on-bad-exit", "--num_processes"}
LANGUAGES = {"", "bash", "console", "json", "pycon", "python", "text", "toml", "yaml"}

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))


@cache
def training_keys() -> dict[str, set[str]]:
    """The keys of a YAML, which are the options too, by command."""
    pytest.importorskip("trl", reason="needs the train extra")
    from grounding_rewards.training import arguments as given

    types = {
        "train": (given.GroundingArguments, given.GRPOArguments, given.ModelArguments),
        "sft": (given.SupervisedArguments, given.SupervisedConfig, given.ModelArguments),
    }
    keys = {name: {field.name for one in many for field in dataclasses.fields(one)} for name, many in types.items()}
    return {**keys, "demo": keys["train"]}


def options_of(command: str) -> set[str]:
    own = {"--help", "--help-all"} if command in TRAINING else {"--help"}
    if command in COMMANDS:
        own |= {name for one in command_app(command).assemble_argument_collection() for name in one.names}
    if command in (*TRAINING, "demo"):
        own |= {f"--{key}" for key in (*training_keys()[command], "config")}
    return own


def wrong_names(words: list[str]) -> list[str]:
    """What of a command is none: its name, or options that it does not have."""
    command, *arguments = words
    if command not in (*COMMANDS, *TRAINING):
        return [command]
    given = [word.partition("=")[0] for word in arguments if re.match(r"--\w", word)]
    return [word for word in given if word not in options_of(command)]


@pages
def test_commands_of_this_package_are_legal(page: Path) -> None:
    for words in shell_commands(page):
        command = ours(words)
        if command is None:
            continue
        assert wrong_names(command) == [], words
        if command[0] not in TRAINING and not LEFT_OUT & set(command):
            command_app(command[0]).parse_args(command[1:])


@pages
def test_commands_within_sentences_have_options_that_exist(page: Path) -> None:
    wrong = {" ".join(words): found for words in inline_commands(page) if (found := wrong_names(words[1:]))}
    # "`grounding-rewards <command>`" stands for any
    assert {words: found for words, found in wrong.items() if found[0] not in ("<command>", "COMMAND")} == {}


@pages
def test_options_within_sentences_exist(page: Path) -> None:
    known = set().union(*map(options_of, (*COMMANDS, *TRAINING))) | OF_OTHERS
    sentences = CODE.findall(FENCED.sub("", page.read_text(encoding="utf-8")))
    # Commands have tests of their own; scripts and other programs have options of their own.
    alone = [code for code in sentences if code.startswith("--")]
    assert [code for code in alone if not known & set(re.findall(r"^--[\w-]+", code))] == []


@pages
def test_files_and_targets_that_commands_name_exist(page: Path) -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    for words in shell_commands(page):
        named = [word for word in words if re.match(r"(?:configs|scripts|assets|docs/examples)/", word)]
        assert [word for word in named if not (REPOSITORY / word).exists()] == [], words
        if words[0] == "make":
            assert re.search(rf"^{re.escape(words[1])}:", makefile, re.MULTILINE), words
        elif words[0] == "python":
            assert words[1] in ("-m", "-c") or (REPOSITORY / words[1]).exists(), words
        elif ours(words) is None:
            assert words[0] in FOREIGN, words


@pages
def test_blocks_are_what_they_say(page: Path) -> None:
    for one in blocks(page):
        assert one.language in LANGUAGES, one
        # The pieces of docs/extend.md go into the middle of files; tests/test_extend.py puts them there.
        if one.language == "python" and ">>>" not in one.code and page.name != "extend.md":
            compile(one.code, str(page), "exec")
        elif one.language == "json":
            for part in [one.code] if one.code.startswith("{\n") else one.code.splitlines():
                json.loads(part)


@pages
def test_keys_of_a_run_are_known(page: Path) -> None:
    yaml = pytest.importorskip("yaml", reason="needs the train extra")
    for one in blocks(page):
        if one.language != "yaml":
            continue
        content = yaml.safe_load(one.code)
        # What is nested is a part of another program's file, or a study, which has an `arms`.
        if isinstance(content, dict) and {"reward", "output_dir", "eval_strategy"} & set(content):
            assert set(content) - training_keys()["train"] - {"arms", "base"} == set() or "arms" in content, one
