"""Compare two runs of `grounding-rewards evaluate` on the images that both have: what became better, what became worse,
and of what no change is shown. Images are matched by id; runs with different reference boxes are refused.

Every difference, B - A, has a 95 % interval over patients (or over images, where no patient is known), the same ones
left out of both. A permutation test says how often chance alone makes a difference as large, and Holm's p accounts for
the number of metrics that are shown. A metric is called better or worse if its interval excludes 0 and Holm's p is
below 0.05; else no change is shown.

The page that --html writes shows images and what the models wrote about them: protect it like the images.

examples:
  grounding-rewards diff runs/before runs/after
  grounding-rewards diff runs/R3 runs/R4 --metric f1_50 --json diff.json
  grounding-rewards diff runs/before runs/after --html runs/after/diff.html --metrics reward_R4 mean_iou f1_50
  grounding-rewards diff one/images.jsonl other/images.jsonl --seed 1 --resamples 20000
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from grounding_rewards.commands.console import output_console, say, write_numbers
from grounding_rewards.commands.options import AllowOutside, Json, LabelMatching, OutputFile, option
from grounding_rewards.common.atomic_files import write_whole
from grounding_rewards.metrics.comparison import DRAWS, MAIN_METRIC
from grounding_rewards.metrics.prediction import Prediction
from grounding_rewards.report.comparison import compare_evaluations, render_diff_page

if TYPE_CHECKING:
    from PIL.Image import Image

# The verdict and its words are those of metrics/comparison.py, the tables and the page those of report/comparison.py.


def run(
    a: Path,
    b: Path,
    /,
    *,
    metric: str = MAIN_METRIC,
    metrics: Sequence[str] = (),
    label_matching: LabelMatching | None = None,
    resamples: int = DRAWS,
    seed: int = 0,
    json: Json = None,
    html: OutputFile = None,
    allow_outside: AllowOutside = False,
    reward: str | None = None,
    every: Annotated[bool, option("print all metrics, labels and tests, not the core alone", name="--all")] = False,
) -> int:
    """Compare A with B, and report.

    Args:
        a: folder of an evaluation, or its images.jsonl
        b: the run that is compared with it
        metric: what the verdict tells first, such as f1_50 or reward_R4; a wrong key lists the right ones
        metrics: show only these and that of --metric; default: the eleven that matter most, and the reward
        label_matching: whether a box is right only under the finding's label; default: as in both evaluations
        resamples: draws of the permutation test
        seed: of them, and of what intervals leave out
        html: write a page that begins with the boxes of both runs on the same images
        reward: by whose change the page chooses images; default: the one that B was evaluated with, else R4

    Returns:
        0, whatever the verdict is.

    Raises:
        ValueError: a run cannot be read, or the two cannot be compared.
        OSError: a file cannot be written.
    """
    comparison = compare_evaluations(
        a,
        b,
        metric=metric,
        metrics=metrics,
        label_matching=label_matching,
        resamples=resamples,
        seed=seed,
        reward=reward,
    )
    if html is not None:
        # Both runs have the same images: those of B's dataset are shown.
        load_image = _image_loader(comparison.run_facts[1], allow_outside)
        write_whole(html, render_diff_page(comparison, load_image=load_image))
    if json is not None:
        write_numbers(json, comparison.to_dict())
    console = output_console(120)
    comparison.print(console, every=every)
    if html is not None:
        console.print(f"Page: {html.resolve().as_uri()}", soft_wrap=True, markup=False)
    return 0


def _image_loader(facts: Mapping[str, Any], allow_outside: bool) -> Callable[[Prediction], Image | None]:
    """Return a function that opens the image of a prediction, or returns None if it cannot be shown.

    Images come from the dataset of the evaluation; those of a log without one are not shown.

    Args:
        facts: of the evaluation: its dataset, split and number of images.
        allow_outside: open also files of the dataset that lie outside its folder.
    """
    from grounding_rewards.data.dataset_columns import load_dataset_image
    from grounding_rewards.prepare.load import SYNTHETIC, load_split

    loaders: dict[str, Callable[[], Image | None]] = {}
    split = facts.get("split")
    # A log without a dataset has no split.
    if split:
        name = str(facts.get("dataset"))
        # The images of a run need not be the first of a dataset, so None takes all; of drawn ones there is no end.
        count = facts.get("images") if name.partition(":")[0] == SYNTHETIC else None
        try:
            dataset = load_split(name, str(split), max_images=count, allow_outside=allow_outside, bad_rows="drop")
            # Most images are not shown: a loader opens one when it is.
            for number, image_id in enumerate(dataset["id"]):
                loaders[str(image_id)] = partial(load_dataset_image, dataset, number)
        except (ValueError, KeyError, OSError, ImportError) as error:
            say(f"grounding-rewards: images are shown without their pixels: {error}", stderr=True)
    return lambda image: loaders[image.id]() if image.id in loaders else None
