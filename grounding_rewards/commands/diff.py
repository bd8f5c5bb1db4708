"""Compare two runs of `grounding-rewards evaluate` on the images that both have: is B better than A, by how much, and
on which labels and sizes of findings. Images are matched by id; runs with different reference boxes are refused.
With more runs, A is compared with each of the others, on the images that all have.

Every metric of both runs has a 95 % interval, and so has their difference, B - A, over patients (or over images, where
no patient is known), the same ones left out of both. A permutation test says how often chance alone makes a difference
as large, and Holm's p accounts for the number of tests in the table. The verdict is about one metric: choose it before
you look.

The baselines that `evaluate` measured with B stand beside both runs. The page that --html writes shows images and what
the models wrote about them: protect it like the images.

examples:
  grounding-rewards diff runs/before runs/after
  grounding-rewards diff runs/R3 runs/R4 --metric mean_iou --json diff.json --markdown diff.md
  grounding-rewards diff runs/before runs/after --html runs/after/diff.html --metrics reward_R4 mean_iou f1_50
  grounding-rewards diff runs/before runs/R1 runs/R3 runs/R4 --html diff.html
  grounding-rewards diff one/images.jsonl other/images.jsonl --seed 1 --resamples 20000
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from grounding_rewards.commands.console import output_console, say, write_json
from grounding_rewards.commands.options import AllowOutside, Json, LabelMatching, option
from grounding_rewards.common.whole_files import write_whole
from grounding_rewards.logs.run_log import LOG
from grounding_rewards.metrics.answered_image import AnsweredImage
from grounding_rewards.metrics.comparison import DRAWS, MAIN_METRIC
from grounding_rewards.report.comparison_tables import compare_evaluations

if TYPE_CHECKING:
    from PIL.Image import Image


def run(
    a: Path,
    b: Path,
    /,
    *others: Path,
    metric: str = MAIN_METRIC,
    metrics: Sequence[str] = (),
    label_matching: LabelMatching | None = None,
    resamples: int = DRAWS,
    seed: int = 0,
    json: Json = None,
    markdown: Path | None = None,
    html: Path | None = None,
    allow_outside: AllowOutside = False,
    reward: str | None = None,
    log: Path | None = None,
    every: Annotated[
        bool, option("print all metrics, labels and sizes, not the twelve that matter most", name="--all")
    ] = False,
) -> int:
    """Compare A with B, and with each of the others, and report.

    Args:
        a: folder of an evaluation, or its images.jsonl
        b: the run that is compared with it
        others: more runs that are compared with A
        metric: what the verdict is about, such as mean_iou or reward_R4; a wrong key lists the right ones
        metrics: show only these; default: all
        label_matching: whether a box is right only under the finding's label; default: as in both evaluations
        resamples: draws of the permutation test
        seed: of them, and of what intervals leave out
        markdown: write the verdict and the tables as Markdown
        html: write a page with metrics, curves and images
        reward: by whose change the page chooses images; default: the one that B was evaluated with, else R4
        log: of the training, whose curves the page shows; default: log.jsonl beside the checkpoint of B

    Returns:
        0, whatever the verdict is.

    Raises:
        ValueError: a run cannot be read, or the two cannot be compared.
        OSError: a file cannot be written.
    """
    comparison = compare_evaluations(
        [a, b, *others],
        metric=metric,
        metrics=metrics,
        label_matching=label_matching,
        resamples=resamples,
        seed=seed,
        reward=reward,
    )
    if markdown is not None:
        write_whole(markdown, comparison.markdown())
    if html is not None:
        from grounding_rewards.logs.run_log import read_entries
        from grounding_rewards.report.diff_page import render_diff_page
        from grounding_rewards.report.plots import training_plot

        facts = comparison.made[1]
        # Beside the checkpoint, if any.
        logged = log or Path(str(facts.get("model", ""))).parent / LOG
        load_image = _image_loader(comparison.images[1], facts, b, allow_outside)
        known = log is not None or ("model" in facts and logged.is_file())
        training = training_plot(read_entries(logged)) if known else None
        write_whole(html, render_diff_page(comparison, load_image=load_image, training=training))
    if json is not None:
        write_json(json, comparison.to_dict())
    console = output_console(170)
    comparison.print(console, every=every)
    if html is not None:
        console.print(f"Page: {html.resolve().as_uri()}", soft_wrap=True, markup=False)
    return 0


def _image_loader(
    images: Sequence[AnsweredImage], facts: Mapping[str, Any], run: Path, allow_outside: bool
) -> Callable[[AnsweredImage], Image | None]:
    """A function that opens the image: its row in the dataset that was evaluated on, else the file that the log names.

    A run from elsewhere may name any file of this machine: only those in its folder are opened.
    """
    from grounding_rewards.data.light_rows import load_dataset_image
    from grounding_rewards.images.decoding import is_below, open_image
    from grounding_rewards.prepare.load import SYNTHETIC, load_split

    # The images of a log have no split.
    if split := facts.get("split"):
        name = str(facts.get("dataset"))
        # The images of the run need not be the first ones; drawn images have no end.
        count = facts.get("images") if name.partition(":")[0] == SYNTHETIC else None
        try:
            dataset = load_split(name, str(split), max_images=count, allow_outside=allow_outside, bad_rows="drop")
            places = {name: k for k, name in enumerate(map(str, dataset["id"]))}
        except (ValueError, KeyError, OSError, ImportError) as error:
            say(f"grounding-rewards: images are drawn without their images: {error}", error=True)
            places = {}
        return lambda image: load_dataset_image(dataset, places[image.id]) if image.id in places else None
    folder = run if run.is_dir() else run.parent
    files = {image.id: image.image for image in images if image.image is not None and Path(image.image).is_file()}
    outside = {name for name, file in files.items() if not (allow_outside or is_below([folder], file))}
    if outside:
        say(
            f"grounding-rewards: {len(outside)} images are drawn without their images, which lie outside "
            f"{str(folder)!r}. Give --allow-outside if these images are meant.",
            error=True,
        )
    return lambda image: open_image(files[image.id]) if image.id in files.keys() - outside else None
