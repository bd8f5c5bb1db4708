"""Evaluate, train with GRPO, evaluate again and show what changed: `python scripts/demo.py --reward R2`.

Options that are not listed here go to scripts/train_grpo.py, for example `--max_steps 50 --seed 1`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from grounding_rewards.evaluation.answers import Decoding
from grounding_rewards.evaluation.figures import FIGURES
from grounding_rewards.evaluation.run import Films, Launch, train_and_compare
from grounding_rewards.report.tables import print_table


def parse_arguments() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--config", default="configs/demo/grpo.yaml", help="of scripts/train_grpo.py")
    parser.add_argument("--warm_start", help="of scripts/train_sft.py, to train supervised before")
    parser.add_argument("--output_dir", type=Path, default=Path("runs/demo"))
    parser.add_argument("--accelerate_config", default=Launch.accelerate_config)
    parser.add_argument("--split", default=Films.split, help="held-out split")
    parser.add_argument("--films", type=int, default=300, help="evaluate on the first so many held-out films")
    parser.add_argument("--samples", type=int, default=Decoding.samples, help="sampled answers per film")
    return parser.parse_known_args()


def main() -> None:
    arguments, overrides = parse_arguments()
    launch = Launch(
        config=arguments.config,
        output_dir=arguments.output_dir,
        accelerate_config=arguments.accelerate_config,
        warm_start=arguments.warm_start,
        overrides=tuple(overrides),
    )
    films = Films(split=arguments.split, count=arguments.films)
    rows, reward = train_and_compare(launch, films, Decoding(samples=arguments.samples))
    print_table(rows, FIGURES, title=f"{reward.__name__} on held-out films, 95 % bootstrap intervals")
    print(f"Films, curves and figures: {(arguments.output_dir / 'index.html').resolve().as_uri()}")


if __name__ == "__main__":
    main()
