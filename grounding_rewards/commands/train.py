"""`grounding-rewards train`, GRPO with a reward on boxes, and `sft`, the supervised warm start before it."""

from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any

from grounding_rewards.commands.console import fold

#: The exit code of a program that SIGTERM ended.
STOPPED = 128 + 15
DRY_RUN = ("--dry-run", "--dry_run")
HELP = ("--help", "-h")
HELP_ALL = ("--help-all", "--help_all")


def run(command: str, words: Sequence[str]) -> int:
    """Train with the options after the command, and return the exit code: 143 if SIGTERM stopped the run.

    Args:
        command: `train` or `sft`.
        words: options; with `--dry-run` every value of the run is printed as YAML instead, and adapters are tried on
            the model's layers where its configuration is on this machine. `--help` shows our options and TRL's most
            common ones, at once; `--help-all` every option, for which TRL is loaded.
    """
    if any(word in HELP for word in words):
        print(short_help(command))
        return 0
    from grounding_rewards.training.arguments import parse_grpo_arguments, parse_sft_arguments

    is_dry_run = any(word in DRY_RUN for word in words)
    # TRL's parser, which knows no --help-all, prints all options for --help.
    option_words = [HELP[0] if word in HELP_ALL else word for word in words if word not in DRY_RUN]
    parse: Any = parse_sft_arguments if command == "sft" else parse_grpo_arguments
    arguments, config, model = parse(option_words)
    if not is_dry_run:
        from grounding_rewards.training.run import train_grpo, train_supervised, was_stopped

        train: Any = train_supervised if command == "sft" else train_grpo
        trainer = train(arguments, config, model)
        return STOPPED if was_stopped(trainer) else 0
    import yaml

    from grounding_rewards.training.run_folder import resolved_config

    # Before `check_model`, which changes options of the adapter.
    resolved = resolved_config(arguments, config, model)
    if model.use_peft:
        from grounding_rewards.training.model import check_model, is_local

        if is_local(model):
            check_model(model, trust_remote_code=config.trust_remote_code)
    print(yaml.safe_dump(resolved, sort_keys=True), end="")
    return 0


def short_help(command: str) -> str:
    """The text of `--help`: this package's options, and those of TRL that most runs set, each with its default.

    Args:
        command: `train` or `sft`.

    Example:
        >>> short_help("train").splitlines()[0]
        'usage: grounding-rewards train --config FILE [--config FILE ...] [--OPTION VALUE ...]'
    """
    from grounding_rewards.rewards.registry import list_rewards
    from grounding_rewards.training.run_options import COMMON_OPTIONS, DESCRIPTIONS, OUR_OPTIONS, USAGE

    our_options = {}
    for option in fields(OUR_OPTIONS[command]):
        default = option.default if option.default_factory is MISSING else option.default_factory()
        our_options[option.name] = (default, option.metadata["help"])
    lines = [f"usage: {USAGE.format(command=command)}", ""]
    rewards_line = f"  {', '.join(list_rewards())}: --help-all has their parameters"
    for paragraph in DESCRIPTIONS[command].format(rewards=rewards_line).split("\n\n"):
        paragraph_lines = paragraph.splitlines()
        if any(line.startswith("  ") for line in paragraph_lines):
            # Examples and lists are indented, and keep their lines.
            lines += paragraph_lines
        else:
            lines.append(" ".join(paragraph.split()))
        lines.append("")
    sections = {"ours": our_options, "TRL's, of which --help-all shows the rest": COMMON_OPTIONS[command]}
    for title, options in sections.items():
        lines.append(f"{title}:")
        for name, (default, text) in options.items():
            # Of a longer text the first sentence: --help-all has the rest.
            sentence = text.partition(". ")[0].rstrip(".")
            lines.append(f"  --{name}{_shown_default(default)}  {sentence}")
        lines.append("")
    return fold("\n".join(lines)).rstrip()


def _shown_default(default: Any) -> str:
    """The default of an option in brackets, as a YAML file has it; empty for None."""
    if default is None:
        return ""
    if isinstance(default, bool):
        return f" [{str(default).lower()}]"
    if isinstance(default, list):
        return f" [{', '.join(default)}]"
    return f" [{default}]"
