"""Measure the shipped tiny model on drawn images under every change, and write the tables of docs/robustness.md.

    python scripts/measure_robustness.py --output docs/robustness.md

Without `--output` the tables are printed. The page's text around the tables is left as it is.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from page_parts import marks_of, replace_part

from grounding_rewards.commands.console import stage_progress
from grounding_rewards.common.whole_files import write_whole
from grounding_rewards.data.model_columns import add_columns
from grounding_rewards.metrics.robustness import ROBUSTNESS_METRICS, RobustnessPoint
from grounding_rewards.models.load import load_model
from grounding_rewards.models.robustness import CORRUPTIONS, Changes, robustness
from grounding_rewards.parsing import box_format_for_model_type
from grounding_rewards.prepare.load import load_split
from grounding_rewards.report.tables import markdown_table
from grounding_rewards.rewards.grounding import get_reward


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model", default="assets/tiny_vlm", help="checkpoint that answers drawn images; default: %(default)s"
    )
    parser.add_argument(
        "--images", type=int, default=100, metavar="N", help="drawn images of the test split; default: %(default)s"
    )
    parser.add_argument("--reward", default="R3", help="whose matcher says what is right; default: %(default)s")
    parser.add_argument("--output", type=Path, metavar="FILE", help="Markdown file whose tables are replaced")
    return parser.parse_args()


def table(points: Sequence[RobustnessPoint]) -> str:
    """The points as a Markdown table, one line each."""
    rows = [
        [point.name, _strength(point), *(_interval(getattr(point, key)) for key in ROBUSTNESS_METRICS)]
        for point in points
    ]
    return markdown_table(["change", "strength", *ROBUSTNESS_METRICS.values()], rows)


def meanings() -> str:
    """What each corruption does, as a Markdown table."""
    rows = [[name, kind.meaning, ", ".join(f"{a:g}" for a in kind.amounts)] for name, kind in CORRUPTIONS.items()]
    return markdown_table(("corruption", "what it does", "strength 1 to 5"), rows)


def _strength(point: RobustnessPoint) -> str:
    return f"{point.strength:g}" if point.family == "corruptions" else f"{round(point.strength * 255)}/255"


def _interval(metric: tuple[float, float, float]) -> str:
    value, low, high = metric
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def main() -> None:
    arguments = parse_arguments()
    model, processor = load_model(arguments.model)
    images = load_split("synthetic", "test", max_images=arguments.images)
    images = add_columns(images, processor, box_format_for_model_type(model.config.model_type))
    reward = get_reward(arguments.reward)
    with stage_progress() as on_progress:
        points = robustness(
            model, processor, images, reward, Changes(), max_new_tokens=64, batch_size=50, on_progress=on_progress
        )
    tables = {
        "what corruptions do": meanings(),
        "corruptions": table([point for point in points if point.family == "corruptions"]),
        "attacks": table([point for point in points if point.family == "pgd"]),
    }
    if arguments.output is None:
        print("\n\n".join(tables.values()))
        return
    page = arguments.output.read_text(encoding="utf-8")
    for name, text in tables.items():
        page = replace_part(page, marks_of(name), f"\n{text}\n")
    write_whole(arguments.output, page)


if __name__ == "__main__":
    main()
