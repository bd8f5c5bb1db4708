"""Turn a downloaded dataset into a folder of parquet shards with prompts, images and boxes, which trains as it is and
streams: splits that keep a patient on one side, prompts that state the format of the answer, images of one size, a card
with counts, licence and checksums. An interrupted run goes on when the same command is given again.
"""

from __future__ import annotations

import argparse
import functools
from dataclasses import fields
from pathlib import Path
from typing import Any

from grounding_rewards.commands.console import add_allow_outside, add_reader_option, stage_progress
from grounding_rewards.data.held_out import SHARES
from grounding_rewards.data.policies import POLICIES
from grounding_rewards.data.prepare.manifest import verify_films
from grounding_rewards.data.prepare.pipeline import prepare_films
from grounding_rewards.data.prepare.settings import BAD_FILMS, IMAGE_FORMATS, SPLITS_FROM, PrepareSettings
from grounding_rewards.data.prompts import TASKS
from grounding_rewards.data.readers import get_reader, list_datasets
from grounding_rewards.data.readers.options import reader_options
from grounding_rewards.parsing.formats import box_format_from_option

EXAMPLES = """\
examples:
  VinDr-CXR for Qwen2.5-VL, all findings of a film in one answer; two of three readers must agree:
    grounding-rewards prepare vindr-cxr --root physionet.org/files/vindr-cxr/1.0.0 --out data/vindr \\
      --box-format qwen2.5-vl --model Qwen/Qwen2.5-VL-3B-Instruct --readers majority --side 1024 --processes 8

  one finding per row, every second row asking for one that is absent:
    grounding-rewards prepare chestx-det --root ChestX-Det --out data/det --box-format qwen3-vl --task finding \\
      --negatives 0.5 --labels Nodule Mass Effusion

  phrases of reports:
    grounding-rewards prepare ms-cxr --root ms-cxr --out data/phrases --box-format qwen3-vl --task phrase

  films of your own, one JSON object a line in films/annotations.jsonl; patients drawn into two splits:
    grounding-rewards prepare jsonl --root films --out data/mine --box-format answer-list \\
      --splits-from hash --split-shares train=0.9,test=0.1

  a reader's own option, here of COCO files that Roboflow wrote:
    grounding-rewards prepare coco --root export --out data/coco --box-format qwen3-vl \\
      --option annotations={split}/_annotations.coco.json

  is every file still as it was written?
    grounding-rewards prepare --verify --out data/vindr

then:
  grounding-rewards train --dataset data/vindr ...
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `prepare` to a parser of its own."""
    parser.add_argument("dataset", nargs="?", metavar="DATASET", help=f"one of: {', '.join(list_datasets())}")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where to write, or to go on")
    parser.add_argument("--verify", action="store_true", help="only check the files of --out; 1 if one is wrong")

    films = parser.add_argument_group("which films")
    films.add_argument("--root", type=Path, metavar="FOLDER", help="the dataset as it was downloaded")
    films.add_argument("--split", metavar="NAME", help="only this split of the dataset's own")
    add_reader_option(films)
    add_allow_outside(films)
    films.add_argument(
        "--readers",
        choices=list(POLICIES),
        help="how the boxes of several readers become one reference; must be given where several people read a film",
    )
    films.add_argument(
        "--normalize-labels", action="store_true", help="write findings in the words of the shared vocabulary"
    )
    films.add_argument(
        "--bad-films",
        choices=BAD_FILMS,
        default="stop",
        help="at a film that cannot be used: stop and name it (default), or skip it and list it in the card",
    )
    films.add_argument("--licence", metavar="WORDS", help="of films in a general format such as jsonl, for the card")
    films.add_argument("--source", metavar="WORDS", help="address or name of where such films are from, for the card")

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
        type=float,
        default=0.5,
        metavar="SHARE",
        help="of the rows of each finding, for --task finding: share that asks where it is absent (default: 0.5)",
    )
    asked.add_argument("--one-wording", action="store_true", help="ask every time in the same words")

    splits = parser.add_argument_group("splits")
    splits.add_argument(
        "--splits-from",
        choices=SPLITS_FROM,
        default="dataset",
        help="take the dataset's own splits, unless it holds no film out (default), or draw every patient by a hash",
    )
    shares = ",".join(f"{name}={share:g}" for name, share in SHARES.items())
    splits.add_argument(
        "--split-shares", default=shares, metavar="NAME=SHARE,…", help=f"of patients who are drawn (default: {shares})"
    )
    splits.add_argument("--seed", type=int, default=0, help="of splits, wording and negatives (default: 0)")

    images = parser.add_argument_group("images")
    images.add_argument("--side", type=int, metavar="PIXELS", help="longest side; larger films are shrunk")
    images.add_argument(
        "--image-format",
        choices=IMAGE_FORMATS,
        default="png",
        help="default: png; jpeg and webp lose little; keep copies files that need no change, metadata included",
    )
    images.add_argument(
        "--squeezed",
        action="store_true",
        help="images are copies in another shape than the films that boxes were drawn on, such as 1024 x 1024",
    )
    images.add_argument(
        "--window",
        metavar="LOW,HIGH",
        help="stored values that become black and white, for films of 16 bits that are no DICOM files "
        "(default: each film's smallest and largest)",
    )
    images.add_argument("--processes", type=int, default=1, metavar="N", help="that work on images (default: 1)")
    images.add_argument(
        "--shard-megabytes", type=float, default=256.0, metavar="MB", help="size of a file (default: 256)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Prepare or verify; 0 if all is well, 1 if a checksum is wrong.

    Raises:
        ValueError: An argument is missing or wrong, or the films are; see `prepare_films`.
    """
    if arguments.verify:
        return _verify(arguments.out)
    for name in ("dataset", "root", "box_format"):
        if getattr(arguments, name) is None:
            option = name if name == "dataset" else f"--{name.replace('_', '-')}"
            raise ValueError(f"Expected {option}, got none. See grounding-rewards prepare --help for examples.")
    settings = _settings(arguments)
    reader = get_reader(settings.dataset)
    options = reader_options(reader, arguments.option)
    read = functools.partial(reader, str(arguments.root), split=arguments.split, **options)
    with stage_progress() as progress:
        manifest = prepare_films(
            read,
            arguments.root,
            arguments.out,
            settings,
            processes=arguments.processes,
            allow_outside=arguments.allow_outside,
            on_progress=progress,
        )
    _print_summary(arguments.out, manifest)
    return 0


def _settings(arguments: argparse.Namespace) -> PrepareSettings:
    given: dict[str, Any] = {field.name: getattr(arguments, field.name, None) for field in fields(PrepareSettings)}
    given |= {
        "box_format": box_format_from_option(arguments.box_format),
        "labels": None if arguments.labels is None else tuple(arguments.labels),
        "shares": _shares(arguments.split_shares),
        "window": _window(arguments.window),
    }
    return PrepareSettings(**given)


def _shares(text: str) -> tuple[tuple[str, float], ...]:
    try:
        pairs = [part.split("=") for part in text.split(",")]
        return tuple((name.strip(), float(share)) for name, share in pairs)
    except ValueError:
        raise ValueError(
            f"Expected NAME=SHARE,… for --split-shares, got {text!r}. Write train=0.8,validation=0.1,test=0.1."
        ) from None


def _window(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise ValueError(f"Expected LOW,HIGH for --window, got {text!r}. Write 31768,33168, for example.") from None
    return low, high


def _verify(out: Path) -> int:
    problems = verify_films(out)
    for problem in problems:
        print(problem)
    print(f"{out}: {len(problems)} problems" if problems else f"{out}: every file is as it was written")
    return int(bool(problems))


def _print_summary(out: Path, manifest: dict[str, Any]) -> None:
    for split, counts in manifest["splits"].items():
        print(
            f"{split}: {counts['films_with_rows']} films, {counts['rows']} rows, {counts['negatives']} without boxes, "
            f"{len(counts['shards'])} shards"
        )
    if manifest["skipped"]:
        print(f"{len(manifest['skipped'])} films left out; the card lists them")
    if copies := manifest["films_with_copies"]:
        print(f"{copies} films are copies of one another; patients who share one are in one split")
    if note := manifest["source"]["note"]:
        print(f"note: {note}")
    print(f"card: {out / 'README.md'}")
