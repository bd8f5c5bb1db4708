"""The options of `grounding-rewards evaluate`: what they are, which exclude each other, and what was asked for."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grounding_rewards.commands.console import add_allow_outside, add_sizes
from grounding_rewards.commands.many_machines import add_many_machines, share_of
from grounding_rewards.data.checks import BAD_ROWS
from grounding_rewards.metrics.evaluation import BAND_RESAMPLES, Measures, evaluation_file, read_evaluation
from grounding_rewards.metrics.ranking import SIZES
from grounding_rewards.metrics.ranking_metrics import AP_THRESHOLDS
from grounding_rewards.rewards.average_precision import INTERPOLATIONS
from grounding_rewards.rewards.label_matching import LABEL_MATCHING

if TYPE_CHECKING:
    from datasets import Dataset

#: As --train-split: no images for the constant box.
NO_SPLIT = "none"
_TEMPERATURE = 1.0
# Where and by how many it is done changes nothing about what is evaluated.
_NOT_ASKED = ("out", "overwrite", "shard", "join")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `grounding-rewards evaluate`."""
    _add_source_images(parser)
    _add_measures(parser)
    _add_generation(parser)
    add_many_machines(parser, work="the answers")
    robustness = parser.add_argument_group("how fragile a model is")
    robustness.add_argument(
        "--robustness",
        nargs="+",
        choices=("corruptions", "pgd"),
        metavar="FAMILY",
        help="change the images: `corruptions`, `pgd` or both; each image is asked about 41 and 5 times",
    )
    robustness.add_argument(
        "--robustness-images", type=int, default=100, metavar="N", help="the first so many; default: %(default)s"
    )


def _add_source_images(parser: argparse.ArgumentParser) -> None:
    """What is evaluated, on which images."""
    source = parser.add_argument_group("what is evaluated").add_mutually_exclusive_group(required=True)
    source.add_argument("--model", metavar="MODEL", help="folder or name of a checkpoint or of a saved adapter")
    source.add_argument("--completions", nargs="+", type=Path, metavar="LOG", help="files or folders with completions")
    images = parser.add_argument_group("on which images")
    images.add_argument("--dataset", metavar="DATA", help="`synthetic`, a folder of images, or a name on the hub")
    images.add_argument("--split", default="test", help="of the dataset; default: %(default)s")
    images.add_argument("--images", type=int, metavar="N", help="the first so many; all without it")
    images.add_argument(
        "--bad-rows",
        choices=BAD_ROWS,
        default="refuse",
        help="images that cannot be right, such as one with a box outside it: name them all and end "
        "(default), or go on without them and say which",
    )
    images.add_argument(
        "--train-split",
        default="train",
        metavar="SPLIT",
        help="the constant box is its median box of each label; `none`: that of the images themselves; default: train",
    )
    images.add_argument("--text-column", metavar="NAME", help="column of the log with the completions")
    add_sizes(images)
    add_allow_outside(images)


def _add_measures(parser: argparse.ArgumentParser) -> None:
    """How it is measured, and where that is written."""
    measures = parser.add_argument_group("how it is measured")
    measures.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="folder to write")
    measures.add_argument(
        "--overwrite", action="store_true", help="write also where the folder has another evaluation, or other answers"
    )
    measures.add_argument("--box-format", metavar="FORMAT", help="how the model writes boxes; default: derived from it")
    measures.add_argument("--reward", default="R4", help="that images are ranked by; default: %(default)s")
    measures.add_argument("--reward-kwargs", metavar="JSON", help="""its parameters, such as '{"beta": 1.0}'""")
    measures.add_argument(
        "--label-matching",
        choices=LABEL_MATCHING,
        default="ignore",
        help="whether a box is right only under the finding's label; mAP always is by label; default: %(default)s",
    )
    measures.add_argument(
        "--nms",
        type=float,
        metavar="IOU",
        help="leave out boxes that overlap a higher-scoring one of their label by more",
    )
    measures.add_argument(
        "--interpolation",
        choices=INTERPOLATIONS,
        default="101",
        help="of average precision: over all recalls (VOC since 2010), at 101 (COCO) or at 11 (VOC before); "
        "default: %(default)s",
    )
    measures.add_argument(
        "--iou",
        type=float,
        nargs="+",
        default=list(AP_THRESHOLDS),
        metavar="IOU",
        help="thresholds of average precision, beside the mean over 0.5 to 0.95; default: 0.3 0.4 0.5",
    )
    measures.add_argument(
        "--sizes",
        choices=SIZES,
        default="image",
        help="sizes of boxes: parts of the image's area, or COCO's in pixels; default: %(default)s",
    )
    measures.add_argument(
        "--resamples",
        type=int,
        default=BAND_RESAMPLES,
        metavar="N",
        help="of the bands around curves; default: %(default)s",
    )
    measures.add_argument("--seed", type=int, default=0, help="of intervals, samples and attacks; default: 0")


def _add_generation(parser: argparse.ArgumentParser) -> None:
    """How a model is asked."""
    generation = parser.add_argument_group("how a model is asked")
    generation.add_argument("--samples", type=int, default=0, metavar="K", help="sampled answers beside the greedy one")
    generation.add_argument("--temperature", type=float, default=_TEMPERATURE, help="of the samples; default: 1")
    generation.add_argument("--max-new-tokens", type=int, default=256, metavar="N", help="default: %(default)s")
    generation.add_argument("--batch-size", type=int, default=32, metavar="N", help="default: %(default)s")
    generation.add_argument(
        "--max-image-pixels",
        type=int,
        metavar="N",
        help="largest image that the model sees; default: what the processor of the model was saved with",
    )
    generation.add_argument(
        "--backend",
        choices=("transformers", "vllm", "auto"),
        default="transformers",
        help="what runs the model; `auto` is vLLM where it is installed and there is a GPU; default: %(default)s",
    )


def check_options(options: argparse.Namespace) -> None:
    """Refuse what cannot be right before a model is loaded, or a log is read.

    Raises:
        ValueError: options exclude each other, a value is out of range, or `--out` has another evaluation.
    """
    if options.model is not None and options.dataset is None:
        raise ValueError("Expected images for --dataset, got none. A model needs images to look at; name some.")
    if options.model is None and options.robustness:
        raise ValueError(
            "Expected a model for --robustness, got a log of completions. Changed images need new answers."
        )
    if options.robustness and options.backend == "vllm":
        raise ValueError(
            "Expected transformers for --backend beside --robustness, got vllm. Attacks need gradients, and changed "
            "images are asked about by transformers: leave --backend out."
        )
    _check_many_machines(options)
    if options.max_image_pixels is not None and options.model is None:
        raise ValueError(
            "Expected a model for --max-image-pixels, got a log of completions. Its images have been seen."
        )
    for name in ("images", "robustness_images", "max_image_pixels"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ValueError(
                f"Expected at least 1 for --{name.replace('_', '-')}, got {value}. Leave it out to do without."
            )
    # Raises for wrong values now, not after hours of generation.
    measures_of(options, options.reward)
    if options.nms is not None and not 0 <= options.nms <= 1:
        raise ValueError(f"Expected an IoU from 0 to 1 for --nms, got {options.nms:g}. 0.5 is usual.")
    if options.samples < 0:
        raise ValueError(
            f"Expected at least 0 for --samples, got {options.samples}. The greedy answer is always there."
        )
    if options.samples and not options.temperature > 0:
        raise ValueError(
            f"Expected a number above 0 for --temperature beside --samples, got {options.temperature:g}. "
            "Samples of a greedy answer are all alike: leave --samples out."
        )
    if options.seed < 0:
        raise ValueError(f"Expected a whole number from 0 up for --seed, got {options.seed}. 0 is usual.")
    if options.out.exists() and not options.out.is_dir():
        raise ValueError(f"Expected a folder for --out, got the file {str(options.out)!r}. Give another name.")
    _check_folder(options)


def _check_many_machines(options: argparse.Namespace) -> None:
    """Refuse what only one machine can do, and what would have no effect."""
    shared = [name for name in ("shard", "join") if getattr(options, name)]
    share_of(options)
    if shared and options.model is None:
        raise ValueError(
            f"Expected a model for --{shared[0]}, got a log of completions. Only answers are shared out: leave it out."
        )
    if options.overwrite and options.shard is not None:
        raise ValueError(
            "Expected --shard without --overwrite, got both. A share would remove the answers of another one: remove "
            "the files of the folder before the array is started."
        )


def _check_folder(options: argparse.Namespace) -> None:
    """Refuse a folder that has the evaluation of something else: it would be lost."""
    taken = [name for name in ("evaluation.json", "images.jsonl", "report.html") if (options.out / name).exists()]
    if options.overwrite or not taken:
        return
    before = read_evaluation(options.out).command if evaluation_file(options.out).is_file() else None
    if before != command_of(options):
        found = f"{taken[0]} of another one" if before is None else f"that of `evaluate {before}`"
        raise ValueError(
            f"Expected a folder without another evaluation for --out, got {str(options.out)!r} with {found}. "
            "Name another folder, or replace what is there with --overwrite."
        )


def command_of(options: argparse.Namespace) -> str:
    """What was asked for: the options that are not at their defaults, without where it is written."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    words = []
    for name, value in vars(options).items():
        if name not in _NOT_ASKED and value != parser.get_default(name):
            given = [] if value is True else value if isinstance(value, list) else [value]
            words += [f"--{name.replace('_', '-')}", *map(str, given)]
    return shlex.join(words)


def measures_of(options: argparse.Namespace, reward: str) -> Measures:
    """How the options say to measure.

    Raises:
        ValueError: a value is out of range.
    """
    return Measures(
        reward,
        options.label_matching,
        options.interpolation,
        tuple(dict.fromkeys(options.iou)),
        options.sizes,
        options.resamples,
        options.seed,
    )


def named_images(options: argparse.Namespace, images: int | None = None) -> Dataset | None:
    """The images that `--dataset` names, the first so many of them; None where a log has them itself."""
    from grounding_rewards.prepare.load import load_split

    if options.dataset is None:
        return None
    return load_split(options.dataset, options.split, max_images=images, **loading(options))


def loading(options: argparse.Namespace) -> dict[str, Any]:
    """What the options say of images that a dataset names."""
    return {"allow_outside": options.allow_outside, "bad_rows": options.bad_rows}
