"""Measure the shipped tiny model on drawn images under every change, and write the tables of docs/robustness.md.

    python scripts/docs/measure_robustness.py --output docs/robustness.md

Without `--output` the tables are printed. The page's text around the tables is left as it is.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from grounding_rewards.commands.console import stage_progress
from grounding_rewards.common.atomic_files import write_whole
from grounding_rewards.data.dataset_columns import add_columns
from grounding_rewards.metrics.robustness import RobustnessPoint
from grounding_rewards.models.load import load_model
from grounding_rewards.models.robustness import CORRUPTIONS, STRENGTHS, robustness
from grounding_rewards.parsing import box_format_for_model_type
from grounding_rewards.prepare.load import load_split
from grounding_rewards.rewards.grounding import get_reward
from scripts.docs.page_parts import markdown_table, marks_of, replace_part


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model", default="assets/tiny_vlm", help="checkpoint that answers drawn images; default: %(default)s"
    )
    parser.add_argument(
        "--images", type=int, default=200, metavar="N", help="drawn images of the test split; default: %(default)s"
    )
    parser.add_argument("--reward", default="R3", help="whose matcher says what is right; default: %(default)s")
    parser.add_argument("--output", type=Path, metavar="FILE", help="Markdown file whose tables are replaced")
    return parser.parse_args()


def table(points: Sequence[RobustnessPoint]) -> str:
    """A line for every change: robust accuracy at every strength, and what else is measured at the greatest."""
    of: dict[str, list[RobustnessPoint]] = {}
    for point in points:
        of.setdefault(point.name, []).append(point)
    unchanged = points[0].accuracy
    rows = []
    for name, changed in of.items():
        *_, last = changed = sorted(point for point in changed if point.strength)
        cells = [f"{point.accuracy[0]:.2f}" for point in changed]
        cells += [""] * (len(STRENGTHS) - len(cells))
        rows.append([_title(name, changed), *cells, f"{last.broken_share[0]:.2f}", f"{last.mean_iou[0]:.2f}"])
    header = ["change", *map(str, STRENGTHS), "lost", "mean IoU"]
    widest = max(point.accuracy[2] - point.accuracy[1] for point in points)
    return (
        f"Robust accuracy by strength. Unchanged: {_interval(unchanged)}; intervals are at most {widest:.2f} wide.\n\n"
        f"{markdown_table(header, rows)}"
    )


def _title(name: str, points: Sequence[RobustnessPoint]) -> str:
    if points[0].family == "corruptions":
        return name
    return f"{name}, ε {', '.join(f'{round(point.strength * 255)}' for point in points)} / 255"


def meanings() -> str:
    """What each corruption does, as a Markdown table."""
    rows = [[name, kind.meaning, ", ".join(f"{a:g}" for a in kind.amounts)] for name, kind in CORRUPTIONS.items()]
    return markdown_table(("corruption", "what it does", "strength 1 to 5"), rows)


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
        points = robustness(model, processor, images, reward, max_new_tokens=64, batch_size=50, on_progress=on_progress)
    tables = {"what corruptions do": meanings(), "measured": table(points)}
    if arguments.output is None:
        print("\n\n".join(tables.values()))
        return
    page = arguments.output.read_text(encoding="utf-8")
    for name, text in tables.items():
        page = replace_part(page, marks_of(name), f"\n{text}\n")
    write_whole(arguments.output, page)


if __name__ == "__main__":
    main()
