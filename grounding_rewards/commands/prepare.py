r"""Turn a downloaded dataset into a folder of parquet shards with prompts, images and boxes, which trains as it is and
streams: splits that keep a patient on one side, prompts that state the format of the answer, images of one size, a card
with counts, licence and checksums. The same command resumes an interrupted run.

examples:
  VinDr-CXR for Qwen2.5-VL, all findings of an image in one answer; two of three readers must agree:
    grounding-rewards prepare vindr-cxr --root physionet.org/files/vindr-cxr/1.0.0 --out data/vindr \
      --box-format qwen2.5-vl --model Qwen/Qwen2.5-VL-3B-Instruct --readers majority --side 1024 --processes 8

  one finding per row, every second row asking for one that is absent:
    grounding-rewards prepare chestx-det --root ChestX-Det --out data/det --box-format qwen3-vl --task finding \
      --negatives 0.5 --labels Nodule Mass Effusion

  phrases of reports:
    grounding-rewards prepare ms-cxr --root ms-cxr --out data/phrases --box-format qwen3-vl --task phrase

  images of your own, one JSON object a line in images/annotations.jsonl; patients drawn into two splits:
    grounding-rewards prepare jsonl --root images --out data/mine --box-format answer-list \
      --splits-from hash --split-shares train=0.9,test=0.1

  a source's own options, here of a COCO file of another name, beside its images:
    grounding-rewards prepare coco --root export --out data/coco --box-format qwen3-vl \
      --option annotations=result.json --option images=.

  tables alone, before the images are there: what would be in it?
    grounding-rewards prepare vindr-cxr --root annotations --box-format qwen3-vl --readers majority --dry-run

  one image in four of those to train on without findings, no specks, prompts of your own
  (prompt.txt: Which of these does the radiograph show: {labels}? {format}):
    grounding-rewards prepare siim-acr --root siim --out data/siim --box-format qwen3-vl --negatives 0.25 \
      --smallest-box 10 --prompt-file prompt.txt

  two datasets in one folder; two thirds of the rows to train on are of the first:
    grounding-rewards prepare --mix data/vindr=2 data/det=1 --out data/mixed

  the table that verl reads, of a folder that was prepared, or of any other dataset that train takes:
    grounding-rewards prepare --for verl data/vindr --split train --model Qwen/Qwen2.5-VL-3B-Instruct \
      --max-pixels 1003520 --out tables/verl

  is every file still as it was written?
    grounding-rewards prepare --verify --out data/vindr

then:
  grounding-rewards train --dataset data/vindr ...

options of sources, for --option:
"""

from __future__ import annotations

import functools
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from cyclopts import Parameter

from grounding_rewards.commands.console import output_console, say, stage_progress
from grounding_rewards.commands.options import AllowOutside, BadRows, BoxFormat, SourceOption
from grounding_rewards.common.text_files import read_text
from grounding_rewards.data.splits import SHARES, TRAIN
from grounding_rewards.exchange.trainer_tables import IMAGES, PixelLimits, write_trainer_table
from grounding_rewards.images.resize import load_processor
from grounding_rewards.parsing.formats import box_format_from_option
from grounding_rewards.prepare.card import left_out_sentences
from grounding_rewards.prepare.load import load_split
from grounding_rewards.prepare.manifest import verify_images
from grounding_rewards.prepare.mix import Part, mix_folders
from grounding_rewards.prepare.pipeline import prepare_images
from grounding_rewards.prepare.settings import PrepareSettings
from grounding_rewards.prepare.upload import push_private
from grounding_rewards.report.tables import Table
from grounding_rewards.sources import get_source
from grounding_rewards.sources.base import describe_options, source_options, split_name

__doc__ = f"{__doc__}{textwrap.indent(describe_options(), '  ')}"

_OF_TABLES = ("min_pixels", "max_pixels", "embed_images")
# Options that do without a source: what each needs beside it, and what else it takes.
_ALONE = {
    "verify": (("out",), ()),
    "mix": (("out",), ("seed", "bad_rows", "push_to_hub", "licence_allows_upload")),
    "push_to_hub": (("out",), ("licence_allows_upload",)),
    "for_": (("dataset", "out"), ("split", "box_format", "model", "bad_rows", "allow_outside", *_OF_TABLES)),
}


@Parameter(name="*")
@dataclass(kw_only=True)
class PrepareOptions:
    """What is prepared, what is asked about it, and how it is written.

    Args:
        out: folder to write, or to go on
        root: the dataset as it was downloaded
        split: only this split of the dataset's own; with --for default: train
        dry_run: only count, from the tables alone: images, rows, boxes by split and finding; images need not be there,
            copies among them are not looked for, and nothing is written
        verify: only check the files of --out; 1 if one is wrong
        mix: FOLDER or FOLDER=WEIGHT: write prepared folders as one, with a column source that evaluate has metrics
            for. Weights are shares of the rows of train, which are left out by a hash to fit; other splits keep all
        for_: write the table that this trainer reads, OUT/SPLIT.parquet or .jsonl, of a dataset that train takes:
            DATASET is then a prepared folder, one with annotations.jsonl, a saved dataset, synthetic, or a name on the
            hub. With --model, sizes are those after the trainer's own resizing
        push_to_hub: then, or for a finished --out alone, upload it under this name to the Hugging Face hub, as a
            private dataset only; without this option nothing leaves the machine
        licence_allows_upload: for --push-to-hub: you have the right to upload images whose licence is not known or
            forbids to pass them on
        readers: how the boxes of several readers become one reference; must be given where several people read an image
        normalize_labels: write findings in the words of the shared vocabulary
        smallest_box: leave out boxes with a side below so many pixels of the image that they were drawn on; an image
            without another box is left out too, as it is no negative
        licence: of images in a general format such as jsonl, for the card
        source: address or name of where such images are from, for the card
        task: what is asked
        model: folder or name of the model: adds the sizes that its processor resizes to, for formats in these pixels
        labels: findings of interest; default: all
        negatives: share of rows without boxes. For --task detection: of the split train, which loses images without
            findings; other splits keep all; default: all images stay. For --task finding: of the rows of each finding
            in every split, those that ask where it is absent; default: 0.5
        prompt_file: prompts in your own words: a text in which {labels} (--task detection), {finding} or {phrase}
            stands for what is looked for, and {format} for the sentences that state the box format
        one_wording: ask every time in the same words
        splits_from: take the dataset's own splits, unless it holds no image out, or draw every patient by a hash
        split_shares: of patients who are drawn
        seed: of splits, wording and negatives
        side: longest side in pixels; larger images are shrunk
        image_format: jpeg and webp lose little; keep copies files that need no change, metadata included
        squeezed: images are copies in another shape than the images that boxes were drawn on, such as 1024 x 1024
        window: LOW,HIGH: stored values that become black and white, for images of 16 bits that are no DICOM files;
            default: each image's smallest and largest
        processes: that work on images; default: 1
        shard_megabytes: size of a file
        min_pixels: with --for, smallest area to which the trainer resizes an image; default: the trainer's own
        max_pixels: with --for, largest area; for verl it stands in the table, for easyr1 and ms-swift in the lines
            that are printed; default: the trainer's own
        embed_images: images become part of the table, for verl and easyr1; default: the table names files, and images
            that trainers would not see alike, of 16 bits for example, are written to OUT/images
    """

    out: Path | None = None
    root: Path | None = None
    split: str | None = None
    option: SourceOption = ()
    dry_run: bool = False
    verify: bool = False
    mix: Sequence[str] = ()
    for_: Literal["verl", "easyr1", "ms-swift", "openrlhf"] | None = None
    push_to_hub: str | None = None
    licence_allows_upload: bool = False
    allow_outside: AllowOutside = False
    readers: str | None = None
    normalize_labels: bool = False
    bad_rows: BadRows = "refuse"
    smallest_box: float | None = None
    licence: str | None = None
    source: str | None = None
    task: Literal["detection", "finding", "phrase"] = "detection"
    box_format: BoxFormat = None
    model: str | None = None
    labels: Sequence[str] | None = None
    negatives: float | None = None
    prompt_file: Path | None = None
    one_wording: bool = False
    splits_from: Literal["dataset", "hash"] = "dataset"
    split_shares: str = ",".join(f"{name}={share:g}" for name, share in SHARES.items())
    seed: int = 0
    side: int | None = None
    image_format: Literal["png", "jpeg", "webp", "keep"] = "png"
    squeezed: bool = False
    window: str | None = None
    processes: int | None = None
    shard_megabytes: float = 256.0
    min_pixels: int | None = None
    max_pixels: int | None = None
    embed_images: bool = False

    def settings(self, dataset: str) -> PrepareSettings:
        """What decides the content of the folder, read from the texts of the command line."""
        given: dict[str, Any] = {one.name: getattr(self, one.name, None) for one in fields(PrepareSettings)}
        given |= {
            "dataset": dataset,
            "split": self.split and split_name(self.split),
            "box_format": box_format_from_option(self.box_format),
            "template": None if self.prompt_file is None else read_text(self.prompt_file).strip(),
            "labels": None if self.labels is None else tuple(self.labels),
            "shares": _shares(self.split_shares),
            "window": _window(self.window),
        }
        return PrepareSettings(**given)


def run(dataset: str | None = None, /, *, options: PrepareOptions | None = None) -> int:
    """Prepare, count or verify; 0 if all is well, 1 if a checksum is wrong.

    Args:
        dataset: name of a source, as listed below the examples; with --for any dataset that train takes

    Raises:
        ValueError: An argument is missing or wrong, or the images are; see `prepare_images`.
    """
    options = options or PrepareOptions()
    mode = next((name for name in _ALONE if getattr(options, name)), "")
    if mode == "push_to_hub" and dataset is not None:
        # It is prepared first.
        mode = ""
    _check(dataset, options, mode)
    out, name = options.out or Path(), dataset or ""
    if mode == "verify":
        problems = verify_images(out)
        for problem in problems:
            say(problem)
        print(f"{out}: {len(problems)} problems" if problems else f"{out}: every file is as it was written")
        return int(bool(problems))
    if mode == "for_":
        _write_table(name, out, options)
    elif mode == "mix":
        parts = [_part(text) for text in options.mix]
        _print_summary(out, mix_folders(parts, out, seed=options.seed, bad_rows=options.bad_rows))
    elif not mode:
        _prepare(name, out, options)
    if options.push_to_hub:
        push_private(out, options.push_to_hub, licence_allows=options.licence_allows_upload)
        say(f"uploaded to {options.push_to_hub}, a private dataset on the hub")
    return 0


def _check(dataset: str | None, options: PrepareOptions, mode: str) -> None:
    """Refuse a command that lacks an argument, or has one that would have no effect."""
    given = {"dataset": dataset}
    given |= {one.name: value for one in fields(options) if (value := getattr(options, one.name)) != one.default}
    if options.dry_run and options.push_to_hub:
        raise ValueError(
            "Expected --dry-run without --push-to-hub, got both. Nothing is written that could be uploaded."
        )
    needed, taken = _ALONE.get(mode, (("dataset", "root", "box_format", *(() if options.dry_run else ("out",))), ()))
    for name in needed:
        if given.get(name) is None:
            raise ValueError(f"Expected {_written(name)}, got none. See grounding-rewards prepare --help for examples.")
    for name, value in given.items():
        if mode and value is not None and name not in (mode, *needed, *taken):
            raise ValueError(
                f"Expected {_written(mode)} without {_written(name)}, got {value!r} for it. It has no effect there: "
                "leave it out, or give it where the images are prepared."
            )
        if not mode and name in _OF_TABLES:
            raise ValueError(f"Expected {_written(name)} with --for only, got it without. Leave it out.")


def _written(name: str) -> str:
    return name if name == "dataset" else f"--{name.rstrip('_').replace('_', '-')}"


def _write_table(name: str, out: Path, options: PrepareOptions) -> None:
    split = options.split or TRAIN
    dataset = load_split(name, split, allow_outside=options.allow_outside, bad_rows=options.bad_rows)
    with stage_progress() as progress:
        table = write_trainer_table(
            dataset,
            str(options.for_),
            out,
            split=split,
            source=Path(name).name,
            box_format=options.box_format,
            processor=None if options.model is None else load_processor(options.model),
            limits=PixelLimits(options.min_pixels, options.max_pixels),
            embed=options.embed_images,
            bad_rows=options.bad_rows,
            on_progress=progress,
        )
    written = f", {table['images']} images written to {out / IMAGES}" if table["images"] else ""
    print(f"{table['path']}: {table['rows']} rows, {table['negatives']} without boxes{written}")
    print("\n".join(table["lines"]))


def _prepare(name: str, out: Path, options: PrepareOptions) -> None:
    settings = options.settings(name)
    read, root = get_source(name).read, options.root or Path()
    read = functools.partial(read, str(root), split=settings.split, **source_options(read, options.option))
    with stage_progress() as progress, _plain_warnings():
        found = prepare_images(
            read,
            root,
            None if options.dry_run else out,
            settings,
            processes=options.processes,
            allow_outside=options.allow_outside,
            on_progress=progress,
        )
    if options.dry_run:
        _print_counts(found)
        _print_findings(found)
        if faults := found["unreadable"]:
            print(f"{len(faults)} images cannot be read and would be left out")
        if note := found["source"]["note"]:
            say(f"note: {note}")
        print("Nothing was written. Copies among the images are looked for when they are prepared.")
    else:
        _print_summary(out, found)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Print each warning once, although tables are read several times, and without a line of code."""
    said: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if (text := str(message)) not in said:
            said.add(text)
            say(f"warning: {text}", error=True)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


@contextmanager
def _read_as(option: str, form: str, text: str, example: str) -> Iterator[None]:
    """Say how the text of an option is written where it cannot be read."""
    try:
        yield
    except ValueError:
        raise ValueError(f"Expected {form} for {option}, got {text!r}. Write {example}.") from None


def _part(text: str) -> Part:
    folder, equals, weight = text.rpartition("=")
    if not equals or Path(text).is_dir():
        return Part(Path(text))
    with _read_as("--mix", "FOLDER or FOLDER=WEIGHT", text, "data/vindr=2, for example"):
        return Part(Path(folder), float(weight))


def _shares(text: str) -> tuple[tuple[str, float], ...]:
    with _read_as("--split-shares", "NAME=SHARE,…", text, "train=0.8,validation=0.1,test=0.1"):
        return tuple((name.strip(), float(share)) for name, share in (part.split("=") for part in text.split(",")))


def _window(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    with _read_as("--window", "LOW,HIGH", text, "31768,33168, for example"):
        low, high = map(float, text.split(","))
        return low, high


def _print_summary(out: Path, manifest: dict[str, Any]) -> None:
    _print_counts(manifest)
    if left_out := len(manifest["skipped"]) + len(manifest.get("unreadable", ())):
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
    output_console(120).print(Table(head, cells).rich())
