"""Evaluate one checkpoint: `python scripts/evaluate.py --model runs/demo/checkpoint`; `--help` says more."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from grounding_rewards.evaluation.answers import Decoding
from grounding_rewards.evaluation.figures import FIGURES
from grounding_rewards.evaluation.run import Films, evaluate_model, load_model, prepare_task
from grounding_rewards.evaluation.summary import write_metrics
from grounding_rewards.parsing import box_format_from_option
from grounding_rewards.report.table import print_table


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="folder of the checkpoint, or a name on the hub")
    parser.add_argument("--dataset", default=Films.dataset, help="`synthetic`, a folder or a name on the hub")
    parser.add_argument("--split", default=Films.split)
    parser.add_argument("--films", type=int, help="the first so many; all without it (of drawn films, 1024)")
    parser.add_argument("--train_split", default=Films.train_split, help="for the constant box; `none` leaves that out")
    parser.add_argument("--reward", default="R4")
    parser.add_argument("--reward_kwargs", type=json.loads, help="""JSON, for example '{"beta": 1.5}'""")
    parser.add_argument(
        "--box_format",
        help="how the model writes boxes, a name or a mapping as JSON; derived from the model without this",
    )
    parser.add_argument("--samples", type=int, default=Decoding.samples, help="sampled answers per film")
    parser.add_argument("--temperature", type=float, default=Decoding.temperature)
    parser.add_argument("--max_new_tokens", type=int, default=Decoding.max_new_tokens)
    parser.add_argument("--batch_size", type=int, default=Decoding.batch_size)
    parser.add_argument("--seed", type=int, default=Decoding.seed)
    parser.add_argument("--output", type=Path, help="write the figures to this file as JSON")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    train_split = None if arguments.train_split == "none" else arguments.train_split
    films = Films(arguments.dataset, arguments.split, arguments.films, train_split)
    decoding = Decoding(
        arguments.samples,
        arguments.temperature,
        arguments.max_new_tokens,
        arguments.batch_size,
        arguments.seed,
    )
    model, processor = load_model(arguments.model)
    task = prepare_task(
        model,
        processor,
        films,
        reward=arguments.reward,
        reward_kwargs=arguments.reward_kwargs,
        box_format=box_format_from_option(arguments.box_format),
    )
    rows = evaluate_model(model, processor, task, decoding, name=Path(arguments.model).name)
    print_table(rows, FIGURES, title=f"{task.reward.__name__} on {len(task.dataset)} films")
    if arguments.output is not None:
        facts = {"reward": repr(task.reward), "model": arguments.model, "films": asdict(films)}
        write_metrics(arguments.output, rows, {**facts, "decoding": asdict(decoding)})


if __name__ == "__main__":
    main()
