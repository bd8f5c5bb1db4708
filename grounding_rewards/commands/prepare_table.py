"""Write the table that another trainer reads, of a folder that was prepared, or of any other dataset that `train`
takes, and print the lines for the trainer's configuration.

examples:
  grounding-rewards prepare-table data/vindr --for verl --split train --model Qwen/Qwen2.5-VL-3B-Instruct \\
    --max-pixels 1003520 --out tables/verl
"""

from pathlib import Path
from typing import Annotated, Literal

from grounding_rewards.commands.console import stage_progress
from grounding_rewards.commands.options import AllowOutside, BadRows, BoxFormat, in_range, option
from grounding_rewards.data.splits import TRAIN
from grounding_rewards.exchange.trainer_tables import IMAGES, PixelLimits, write_trainer_table
from grounding_rewards.images.resize import load_processor
from grounding_rewards.prepare.load import load_split

Trainer = Annotated[
    Literal["verl", "easyr1", "ms-swift", "openrlhf"],
    option("the trainer; with --model, sizes are those after its own resizing", name="--for"),
]


def run(
    dataset: str,
    /,
    *,
    trainer: Trainer,
    out: Annotated[Path, option("folder of the table, OUT/SPLIT.parquet or .jsonl")],
    split: str = TRAIN,
    box_format: BoxFormat = None,
    model: str | None = None,
    min_pixels: Annotated[int | None, in_range(1)] = None,
    max_pixels: Annotated[int | None, in_range(1)] = None,
    bad_rows: BadRows = "refuse",
    allow_outside: AllowOutside = False,
) -> int:
    """Write the table of another trainer.

    Args:
        dataset: a prepared folder, one with annotations.jsonl, a saved dataset, synthetic, or a name on the hub
        split: of the dataset
        model: folder or name of the model that the trainer trains
        min_pixels: smallest area to which the trainer resizes an image; default: the trainer's own
        max_pixels: largest area; for verl it stands in the table, for easyr1 and ms-swift in the lines that are
            printed; default: the trainer's own
    """
    images = load_split(dataset, split, allow_outside=allow_outside, bad_rows=bad_rows)
    with stage_progress() as progress:
        table = write_trainer_table(
            images,
            trainer,
            out,
            split=split,
            source=Path(dataset).name,
            box_format=box_format,
            processor=None if model is None else load_processor(model),
            limits=PixelLimits(min_pixels, max_pixels),
            bad_rows=bad_rows,
            on_progress=progress,
        )
    image_note = f", {table['images']} images written to {out / IMAGES}" if table["images"] else ""
    print(f"{table['path']}: {table['rows']} rows, {table['negatives']} without boxes{image_note}")
    print("\n".join(table["lines"]))
    return 0
