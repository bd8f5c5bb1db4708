"""How well the readers of a dataset agree with each other: the human ceiling of a model that learns from them.

Every pair of readers of an image is compared, label by label: F1 of their boxes from each IoU threshold on, and the
mean IoU of boxes that overlap, with 95 % intervals over images. A finding is a label on an image that at least one
reader drew; the shares say how many drew it.

examples:
  grounding-rewards agreement vindr-cxr --root physionet.org/files/vindr-cxr/1.0.0
  grounding-rewards agreement vindr-cxr --root vindr-cxr --split train --iou 0.3 0.5 --json agreement.json
"""

from __future__ import annotations

from grounding_rewards.commands.console import output_console, write_json
from grounding_rewards.commands.options import Json, SourceOption
from grounding_rewards.common.formatting import NO_VALUE
from grounding_rewards.data.readers import IOU_THRESHOLDS, measure_agreement
from grounding_rewards.report.tables import Cell, Table, estimate_cell
from grounding_rewards.sources import get_source
from grounding_rewards.sources.base import source_options, split_name


def run(
    dataset: str,
    /,
    *,
    root: str,
    split: str | None = None,
    option: SourceOption = (),
    iou: tuple[float, ...] = IOU_THRESHOLDS,
    json: Json = None,
) -> int:
    """Print how well the readers of a dataset agree.

    Args:
        dataset: name of a source, such as vindr-cxr
        root: folder of the dataset
        split: one split; default: all
        iou: thresholds from which two boxes agree
    """
    read = get_source(dataset).read
    images = read(root, split=split and split_name(split), **source_options(read, option))
    agreement = measure_agreement(images, iou_thresholds=iou)
    if json is not None:
        write_json(json, agreement.to_dict())
    drawn_by = (f"by {number}" for number in range(1, len(agreement.overall.drawn_by) + 1))
    f1 = (f"F1@{threshold:g}" for threshold in agreement.overall.f1)
    rows: list[list[str | Cell]] = []
    for row in (agreement.overall, *agreement.labels):
        shares = [f"{number / row.findings:.0%}" if row.findings else NO_VALUE for number in row.drawn_by]
        name = Cell("all labels", kind="strong") if row.label is None else row.label
        rows.append([name, str(row.findings), *shares, *map(estimate_cell, (*row.f1.values(), row.mean_iou))])
    alone = f", {agreement.single} more with one reader left out" if agreement.single else ""
    title = f"{dataset}: {agreement.pairs} pairs of readers on {agreement.images} images{alone}"
    caption = "A model that does better than this against one reader has learned that reader, not the finding."
    table = Table(["", "findings", *drawn_by, *f1, "mean IoU"], rows, title)
    output_console(140).print(table.rich(caption=caption))
    return 0
