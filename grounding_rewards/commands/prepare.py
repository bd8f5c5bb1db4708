"""Turn a downloaded dataset into a folder of parquet shards with prompts, images and boxes, which trains as it is and
streams: splits that keep a patient on one side, prompts that state the format of the answer, images of one size, a card
with counts, licence and checksums. An interrupted run goes on when the same command is given again.
"""

from __future__ import annotations

import argparse
import functools
import textwrap
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from grounding_rewards.commands.console import add_allow_outside, add_reader_option, say, stage_progress
from grounding_rewards.commands.many_machines import add_many_machines, share_of
from grounding_rewards.common.job_shares import Share
from grounding_rewards.common.texts import read_text
from grounding_rewards.data.checks import BAD_ROWS
from grounding_rewards.data.held_out import SHARES, TRAIN
from grounding_rewards.data.merging import POLICIES
from grounding_rewards.data.prompts import TASKS
from grounding_rewards.exchange.trainer_tables import IMAGES, TABLES, write_trainer_table
from grounding_rewards.images.resize import load_processor
from grounding_rewards.images.trainer_sizes import PixelLimits
from grounding_rewards.parsing.formats import box_format_from_option
from grounding_rewards.prepare.card import left_out_sentences
from grounding_rewards.prepare.load import load_split
from grounding_rewards.prepare.manifest import verify_images
from grounding_rewards.prepare.mix import Part, mix_folders
from grounding_rewards.prepare.pipeline import prepare_images, prepare_share, survey_only
from grounding_rewards.prepare.settings import IMAGE_FORMATS, SPLITS_FROM, PrepareSettings
from grounding_rewards.prepare.upload import push_private
from grounding_rewards.sources import get_reader, list_datasets
from grounding_rewards.sources.source_options import describe_options, reader_options

EXAMPLES = """\
examples:
  VinDr-CXR for Qwen2.5-VL, all findings of an image in one answer; two of three readers must agree:
    grounding-rewards prepare vindr-cxr --root physionet.org/files/vindr-cxr/1.0.0 --out data/vindr \\
      --box-format qwen2.5-vl --model Qwen/Qwen2.5-VL-3B-Instruct --readers majority --side 1024 --processes 8

  one finding per row, every second row asking for one that is absent:
    grounding-rewards prepare chestx-det --root ChestX-Det --out data/det --box-format qwen3-vl --task finding \\
      --negatives 0.5 --labels Nodule Mass Effusion

  phrases of reports:
    grounding-rewards prepare ms-cxr --root ms-cxr --out data/phrases --box-format qwen3-vl --task phrase

  images of your own, one JSON object a line in images/annotations.jsonl; patients drawn into two splits:
    grounding-rewards prepare jsonl --root images --out data/mine --box-format answer-list \\
      --splits-from hash --split-shares train=0.9,test=0.1

  a reader's own option, here of COCO files that Roboflow wrote:
    grounding-rewards prepare coco --root export --out data/coco --box-format qwen3-vl \\
      --option annotations={split}/_annotations.coco.json

  tables alone, before the images are there: what would be in it?
    grounding-rewards prepare vindr-cxr --root annotations --box-format qwen3-vl --readers majority --dry-run

  one image in four of those to train on without findings, no specks, prompts of your own
  (prompt.txt: Which of these does the radiograph show: {labels}? {format}):
    grounding-rewards prepare siim-acr --root siim --out data/siim --box-format qwen3-vl --negatives 0.25 \\
      --smallest-box 10 --prompt-file prompt.txt

  two datasets in one folder; two thirds of the rows to train on are of the first:
    grounding-rewards prepare --mix data/vindr=2 data/det=1 --out data/mixed

  the table that verl reads, of a folder that was prepared, or of any other dataset that train takes:
    grounding-rewards prepare --for verl data/vindr --split train --model Qwen/Qwen2.5-VL-3B-Instruct \\
      --max-pixels 1003520 --out tables/verl

  share 3 of 64 of the images as a task of a SLURM array, and then all shares together:
    grounding-rewards prepare ms-cxr --root ms-cxr --out data/phrases --box-format qwen3-vl --task phrase --shard 3/64
    grounding-rewards prepare ms-cxr --root ms-cxr --out data/phrases --box-format qwen3-vl --task phrase --join

  is every file still as it was written?
    grounding-rewards prepare --verify --out data/vindr

then:
  grounding-rewards train --dataset data/vindr ...
"""

_OF_TABLES = ("min_pixels", "max_pixels", "embed_images")
# Options that do without a reader, and the arguments that they take.
_ALONE = {
    "verify": ("out",),
    "mix": ("out", "seed", "bad_rows", "push_to_hub", "licence_allows_upload"),
    "push_to_hub": ("out", "licence_allows_upload"),
    "for": ("dataset", "out", "split", "box_format", "model", "bad_rows", "allow_outside", *_OF_TABLES),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `prepare` to a parser of its own."""
    parser.add_argument("dataset", nargs="?", metavar="DATASET", help=f"one of: {', '.join(list_datasets())}")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where to write, or to go on")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="only count, from the tables alone: images, rows, boxes by split and finding; images need not be there, "
        "copies among them are not looked for, and nothing is written",
    )
    parser.add_argument("--verify", action="store_true", help="only check the files of --out; 1 if one is wrong")

    parser.add_argument(
        "--mix",
        nargs="+",
        metavar="FOLDER[=WEIGHT]",
        help="write prepared folders as one, with a column source that evaluate has metrics for. Weights are shares of "
        "the rows of train, which are left out by a hash to fit; other splits keep all",
    )
    parser.add_argument(
        "--for",
        choices=list(TABLES),
        help="write the table that this trainer reads, OUT/SPLIT.parquet or .jsonl, of a dataset that train takes: "
        "DATASET is then a prepared folder, one with annotations.jsonl, a saved dataset, synthetic, or a name on the "
        "hub. With --model, sizes are those after the trainer's own resizing",
    )
    parser.add_argument(
        "--push-to-hub",
        metavar="NAME",
        help="then, or for a finished --out alone, upload it to the Hugging Face hub, as a private dataset only; "
        "without this option nothing leaves the machine",
    )
    parser.add_argument(
        "--licence-allows-upload",
        action="store_true",
        help="for --push-to-hub: you have the right to upload images whose licence is not known or forbids to "
        "pass them "
        "on",
    )
    _add_source_images(parser)
    _add_asked(parser)
    _add_splits(parser)
    _add_images(parser)
    add_many_machines(parser, work="the images")
    _add_tables(parser)
    parser.add_argument_group("options of readers, for --option", textwrap.indent(describe_options(), "  "))


def _add_source_images(parser: argparse.ArgumentParser) -> None:
    """Which images are prepared."""
    images = parser.add_argument_group("which images")
    images.add_argument("--root", type=Path, metavar="FOLDER", help="the dataset as it was downloaded")
    images.add_argument(
        "--split", metavar="NAME", help="only this split of the dataset's own; with --for default: train"
    )
    add_reader_option(images)
    add_allow_outside(images)
    images.add_argument(
        "--readers",
        choices=list(POLICIES),
        help="how the boxes of several readers become one reference; must be given where several people read an image",
    )
    images.add_argument(
        "--normalize-labels", action="store_true", help="write findings in the words of the shared vocabulary"
    )
    images.add_argument(
        "--bad-rows",
        choices=BAD_ROWS,
        default="refuse",
        help="at an image that cannot be used: stop and name it (default), or leave it out and list it in the card",
    )
    images.add_argument(
        "--smallest-box",
        type=float,
        metavar="PIXELS",
        help="leave out boxes with a side below this, in pixels of the image that they were drawn on; an image without "
        "another box is left out too, as it is no negative",
    )
    images.add_argument("--licence", metavar="WORDS", help="of images in a general format such as jsonl, for the card")
    images.add_argument("--source", metavar="WORDS", help="address or name of where such images are from, for the card")


def _add_asked(parser: argparse.ArgumentParser) -> None:
    """What is asked about them."""
    asked = parser.add_argument_group("what is asked")
    asked.add_argument("--task", choices=TASKS, default="detection", help="default: detection")
    asked.add_argument(
        "--box-format", metavar="FORMAT", help="how the model writes boxes: a name, or a mapping in JSON"
    )
    asked.add_argument(
        "--model",
        metavar="PATH",
        help="folder or name of the model: adds the sizes that its processor resizes to, for formats in these pixels",
    )
    asked.add_argument("--labels", nargs="+", metavar="FINDING", help="findings of interest (default: all)")
    asked.add_argument(
        "--negatives",
        metavar="SHARE",
        help="share of rows without boxes. For --task detection: of the split train, which loses images without "
        "findings; other splits keep all, unless train=0.3,validation=0.5 names them (default: all images stay). For "
        "--task finding: of the rows of each finding in every split, those that ask where it is absent (default: 0.5)",
    )
    asked.add_argument(
        "--prompt-file",
        type=Path,
        metavar="FILE",
        help="prompts in your own words: a text in which {labels} (--task detection), {finding} or {phrase} stands for "
        "what is looked for, and {format} for the sentences that state the box format",
    )
    asked.add_argument("--one-wording", action="store_true", help="ask every time in the same words")


def _add_splits(parser: argparse.ArgumentParser) -> None:
    """How they are split."""
    splits = parser.add_argument_group("splits")
    splits.add_argument(
        "--splits-from",
        choices=SPLITS_FROM,
        default="dataset",
        help="take the dataset's own splits, unless it holds no image out (default), or draw every patient by a hash",
    )
    shares = ",".join(f"{name}={share:g}" for name, share in SHARES.items())
    splits.add_argument(
        "--split-shares", default=shares, metavar="NAME=SHARE,…", help=f"of patients who are drawn (default: {shares})"
    )
    splits.add_argument("--seed", type=int, default=0, help="of splits, wording and negatives (default: 0)")


def _add_images(parser: argparse.ArgumentParser) -> None:
    """How they are written."""
    images = parser.add_argument_group("images")
    images.add_argument("--side", type=int, metavar="PIXELS", help="longest side; larger images are shrunk")
    images.add_argument(
        "--image-format",
        choices=IMAGE_FORMATS,
        default="png",
        help="default: png; jpeg and webp lose little; keep copies files that need no change, metadata included",
    )
    images.add_argument(
        "--squeezed",
        action="store_true",
        help="images are copies in another shape than the images that boxes were drawn on, such as 1024 x 1024",
    )
    images.add_argument(
        "--window",
        metavar="LOW,HIGH",
        help="stored values that become black and white, for images of 16 bits that are no DICOM files "
        "(default: each image's smallest and largest)",
    )
    images.add_argument(
        "--processes",
        type=int,
        metavar="N",
        help="that work on images (default: 1)",
    )
    images.add_argument(
        "--shard-megabytes", type=float, default=256.0, metavar="MB", help="size of a file (default: 256)"
    )


def _add_tables(parser: argparse.ArgumentParser) -> None:
    """What is written for other trainers."""
    tables = parser.add_argument_group("tables of other trainers, with --for")
    for name, words in (("min", "smallest"), ("max", "largest")):
        tables.add_argument(
            f"--{name}-pixels",
            type=int,
            metavar="AREA",
            help=f"{words} area to which the trainer resizes an image; for verl it stands in the table, for easyr1 and "
            "ms-swift in the lines that are printed (default: the trainer's own)",
        )
    tables.add_argument(
        "--embed-images",
        action="store_true",
        help="images become part of the table, for verl and easyr1 (default: the table names files, and images that "
        "trainers would not see alike, of 16 bits for example, are written to OUT/images)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Prepare, count or verify; 0 if all is well, 1 if a checksum is wrong.

    Raises:
        ValueError: An argument is missing or wrong, or the images are; see `prepare_images`.
    """
    mode = next((name for name in _ALONE if getattr(arguments, name)), None)
    push_alone = mode == "push_to_hub" and arguments.dataset is None
    without_reader = push_alone or mode in ("verify", "mix", "for")
    if mode is not None and without_reader:
        _refuse_others(arguments, mode)
    share = share_of(arguments)
    if share is not None and (arguments.dry_run or arguments.push_to_hub):
        option = "--dry-run" if arguments.dry_run else "--push-to-hub"
        raise ValueError(f"Expected --shard without {option}, got both. Leave --shard out: a share is not the dataset.")
    if arguments.dry_run and arguments.push_to_hub:
        raise ValueError(
            "Expected --dry-run without --push-to-hub, got both. Nothing is written that could be uploaded."
        )
    needed: tuple[str, ...] = ("out",) if without_reader else ("dataset", "root", "box_format", "out")
    if mode == "for":
        needed = ("dataset", "out")
    for name in needed[:-1] if arguments.dry_run else needed:
        if getattr(arguments, name) is None:
            option = name if name == "dataset" else f"--{name.replace('_', '-')}"
            raise ValueError(f"Expected {option}, got none. See grounding-rewards prepare --help for examples.")
    if arguments.verify:
        return _verify(arguments.out)
    if mode == "for":
        return _write_table(arguments)
    for name in _OF_TABLES:
        if getattr(arguments, name):
            raise ValueError(f"Expected --{name.replace('_', '-')} with --for only, got it without. Leave it out.")
    if arguments.mix:
        parts = [_part(text) for text in arguments.mix]
        _print_summary(
            arguments.out, mix_folders(parts, arguments.out, seed=arguments.seed, bad_rows=arguments.bad_rows)
        )
    elif not push_alone:
        _prepare(arguments, share)
    if arguments.push_to_hub:
        push_private(arguments.out, arguments.push_to_hub, licence_allows=arguments.licence_allows_upload)
        say(f"uploaded to {arguments.push_to_hub}, a private dataset on the hub")
    return 0


def _refuse_others(arguments: argparse.Namespace, mode: str) -> None:
    """Refuse arguments that would have no effect beside the option of this mode."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    for name, value in vars(arguments).items():
        if name not in (mode, *_ALONE[mode]) and value != parser.get_default(name):
            option = "dataset" if name == "dataset" else f"--{name.replace('_', '-')}"
            raise ValueError(
                f"Expected --{mode.replace('_', '-')} without {option}, got {value!r} for it. It has no effect there: "
                "leave it out, or give it where the images are prepared."
            )


def _write_table(arguments: argparse.Namespace) -> int:
    trainer, split = getattr(arguments, "for"), arguments.split or TRAIN
    dataset = load_split(arguments.dataset, split, allow_outside=arguments.allow_outside, bad_rows=arguments.bad_rows)
    with stage_progress() as progress:
        table = write_trainer_table(
            dataset,
            trainer,
            arguments.out,
            split=split,
            source=Path(arguments.dataset).name,
            box_format=arguments.box_format,
            processor=None if arguments.model is None else load_processor(arguments.model),
            limits=PixelLimits(arguments.min_pixels, arguments.max_pixels),
            embed=arguments.embed_images,
            bad_rows=arguments.bad_rows,
            on_progress=progress,
        )
    print(
        f"{table['path']}: {table['rows']} rows, {table['negatives']} without boxes, {table['images']} images written "
        f"to {arguments.out / IMAGES}"
        if table["images"]
        else f"{table['path']}: {table['rows']} rows, {table['negatives']} without boxes"
    )
    print("\n".join(table["lines"]))
    return 0


def _prepare(arguments: argparse.Namespace, share: Share | None) -> None:
    settings = _settings(arguments)
    reader = get_reader(settings.dataset)
    options = reader_options(reader, arguments.option)
    read = functools.partial(reader, str(arguments.root), split=arguments.split, **options)
    if arguments.dry_run:
        with stage_progress() as progress:
            counted = survey_only(read, settings, on_progress=progress)
        _print_counts(counted)
        _print_findings(counted)
        if faults := counted["unreadable"]:
            print(f"{len(faults)} images cannot be read and would be left out")
        if note := counted["source"]["note"]:
            say(f"note: {note}")
        print("Nothing was written. Copies among the images are looked for when they are prepared.")
        return
    if share is not None:
        with stage_progress() as progress:
            part, images = prepare_share(
                read,
                arguments.root,
                arguments.out,
                settings,
                share,
                processes=arguments.processes,
                allow_outside=arguments.allow_outside,
                on_progress=progress,
            )
        say(f"{part}: {images} images of shard {share}; when all are there, give --join instead")
        return
    with stage_progress() as progress:
        manifest = prepare_images(
            read,
            arguments.root,
            arguments.out,
            settings,
            processes=arguments.processes,
            join=arguments.join,
            allow_outside=arguments.allow_outside,
            on_progress=progress,
        )
    _print_summary(arguments.out, manifest)


def _part(text: str) -> Part:
    folder, equals, weight = text.rpartition("=")
    if not equals or Path(text).is_dir():
        return Part(Path(text))
    try:
        return Part(Path(folder), float(weight))
    except ValueError:
        raise ValueError(
            f"Expected FOLDER or FOLDER=WEIGHT for --mix, got {text!r}. Write data/vindr=2, for example."
        ) from None


def _settings(arguments: argparse.Namespace) -> PrepareSettings:
    given: dict[str, Any] = {field.name: getattr(arguments, field.name, None) for field in fields(PrepareSettings)}
    given |= {
        "box_format": box_format_from_option(arguments.box_format),
        "negatives": _negatives(arguments.negatives),
        "template": None if arguments.prompt_file is None else read_text(arguments.prompt_file).strip(),
        "labels": None if arguments.labels is None else tuple(arguments.labels),
        "shares": _shares(arguments.split_shares),
        "window": _window(arguments.window),
    }
    return PrepareSettings(**given)


def _shares(text: str, option: str = "--split-shares") -> tuple[tuple[str, float], ...]:
    try:
        pairs = [part.split("=") for part in text.split(",")]
        return tuple((name.strip(), float(share)) for name, share in pairs)
    except ValueError:
        raise ValueError(
            f"Expected NAME=SHARE,… for {option}, got {text!r}. Write train=0.8,validation=0.1,test=0.1."
        ) from None


def _negatives(text: str | None) -> float | tuple[tuple[str, float], ...] | None:
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return _shares(text, "--negatives")


def _window(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise ValueError(f"Expected LOW,HIGH for --window, got {text!r}. Write 31768,33168, for example.") from None
    return low, high


def _verify(out: Path) -> int:
    problems = verify_images(out)
    for problem in problems:
        say(problem)
    print(f"{out}: {len(problems)} problems" if problems else f"{out}: every file is as it was written")
    return int(bool(problems))


def _print_summary(out: Path, manifest: dict[str, Any]) -> None:
    _print_counts(manifest)
    if left_out := len(manifest["skipped"]) + len(manifest["unreadable"]):
        print(f"{left_out} images left out; the card lists them")
    if copies := manifest["images_with_copies"]:
        print(f"{copies} images are copies of one another; patients who share one are in one split")
    if note := manifest["source"]["note"]:
        say(f"note: {note}")
    say(f"card: {out / 'README.md'}")


def _print_counts(counted: Mapping[str, Any]) -> None:
    for split, counts in counted["splits"].items():
        shards = f", {len(counts['shards'])} shards" if "shards" in counts else ""
        print(
            f"{split}: {counts['images_with_rows']} images, {counts['rows']} rows, {counts['negatives']} without boxes"
            f" ({counts['negatives'] / max(counts['rows'], 1):.1%}), {sum(counts['boxes'].values())} boxes{shards}"
        )
    for sentence in left_out_sentences(counted):
        say(sentence)


def _print_findings(counted: Mapping[str, Any]) -> None:
    """Rows with each finding, and boxes of it, a column for each split."""
    splits = counted["splits"].values()
    head = ["finding", *(f"{split}: rows, boxes" for split in counted["splits"])]
    cells = [
        [label, *(f"{one['rows_with'].get(label, 0)}, {one['boxes'].get(label, 0)}" for one in splits)]
        for label in counted["vocabulary"]
    ]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    for first, *others in (head, *cells):
        right = (f"{cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True))
        say("  ".join([f"{first:<{widths[0]}}", *right]))
