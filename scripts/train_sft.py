"""Supervised cold start: `python scripts/train_sft.py --config configs/demo/sft.yaml`."""

from __future__ import annotations

from grounding_rewards.training.sft import parse_sft_arguments, train_supervised


def main() -> None:
    """Read the arguments and train."""
    arguments, config = parse_sft_arguments()
    train_supervised(arguments, config)


if __name__ == "__main__":
    main()
