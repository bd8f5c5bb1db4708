"""Make the model of the demo: build it untrained, then give it its cold start.

  python scripts/build_tiny_vlm.py --output assets/tiny_vlm

Options that are not listed here go to scripts/train_sft.py, for example `--max_steps 100`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from grounding_rewards.data.synthetic import LABELS
from grounding_rewards.training.sft import parse_sft_arguments, train_supervised
from grounding_rewards.training.tiny_vlm import build_model, build_processor, build_tokenizer, save_tiny_vlm

# What the tokenizer writes in few tokens: the findings of drawn films, and the lungs of real ones.
VOCABULARIES = (LABELS, ("right lung", "left lung"))


def main() -> None:
    """Read the arguments, build and train."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--output", type=Path, default=Path("assets/tiny_vlm"), help="folder of the trained model")
    parser.add_argument(
        "--untrained", type=Path, default=Path("runs/tiny_vlm/untrained"), help="folder of the untrained"
    )
    parser.add_argument("--config", default="configs/demo/sft.yaml", help="of scripts/train_sft.py")
    options, overrides = parser.parse_known_args()
    arguments, config = parse_sft_arguments(
        [
            *("--config", options.config, "--model", str(options.untrained), "--output_dir", str(options.output)),
            *overrides,
        ]
    )
    tokenizer = build_tokenizer(VOCABULARIES)
    model = build_model(tokenizer, seed=config.seed)
    save_tiny_vlm(model, build_processor(tokenizer), options.untrained)
    train_supervised(arguments, config)


if __name__ == "__main__":
    main()
