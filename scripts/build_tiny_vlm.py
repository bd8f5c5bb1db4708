"""Make the model of the demo: build it untrained, then give it its warm start.

  python scripts/build_tiny_vlm.py --output assets/tiny_vlm

Options that are not listed here go to `grounding-rewards sft`, for example `--max_steps 100`.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from grounding_rewards.models.tiny_vlm import save_untrained
from grounding_rewards.training.arguments import parse_sft_arguments
from grounding_rewards.training.run import train_supervised
from grounding_rewards.training.run_folder import CHECKPOINT, CONFIG

# Weights, configuration, tokenizer and chat template; the card stays with the run.
_KEPT = (".safetensors", ".json", ".jinja")


def main() -> None:
    """Read the arguments, build and train."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--output", type=Path, default=Path("assets/tiny_vlm"), help="folder of the trained model")
    parser.add_argument(
        "--untrained", type=Path, default=Path("runs/tiny_vlm/untrained"), help="folder of the untrained"
    )
    parser.add_argument("--run", type=Path, default=Path("runs/tiny_vlm/sft"), help="folder of the training run")
    parser.add_argument("--config", default="configs/demo/sft.yaml", help="of `grounding-rewards sft`")
    options, overrides = parser.parse_known_args()
    arguments, config, start = parse_sft_arguments(
        [
            *("--config", options.config, "--model_name_or_path", str(options.untrained)),
            *("--output_dir", str(options.run), "--overwrite"),
            *overrides,
        ]
    )
    save_untrained(options.untrained, seed=config.seed)
    train_supervised(arguments, config, start)
    options.output.mkdir(parents=True, exist_ok=True)
    made = [path for path in (options.run / CHECKPOINT).iterdir() if path.suffix in _KEPT]
    for path in (*made, options.run / CONFIG):
        shutil.copy(path, options.output)


if __name__ == "__main__":
    main()
