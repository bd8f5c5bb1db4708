r"""Turn a downloaded dataset into a folder of parquet shards with prompts, images and boxes, which trains as it is and
streams: splits that keep a patient on one side, prompts that state the format of the answer, images of one size, a card
with counts, licence and checksums. The same command resumes an interrupted run. `prepare-mix` joins such folders,
`prepare-table` writes what other trainers read, `prepare-verify` checks the files.

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

  one image in four of those to train on without findings, no specks, prompts of your own
  (prompt.txt: Which of these does the radiograph show: {labels}? {format}):
    grounding-rewards prepare siim-acr --root siim --out data/siim --box-format qwen3-vl --negatives 0.25 \
      --smallest-box 10 --prompt-file prompt.txt

then:
  grounding-rewards train --dataset data/vindr ...

options of sources, for --option, are on the page of datasets (docs/datasets.md)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from grounding_rewards.commands.console import say, stage_progress
from grounding_rewards.commands.options import AllowOutside, BadRows, SourceOption
from grounding_rewards.common.text_files import read_text
from grounding_rewards.common.workers import check_workers
from grounding_rewards.data.annotated_image import AnnotatedImage
from grounding_rewards.data.splits import SHARES
from grounding_rewards.parsing import get_box_format
from grounding_rewards.prepare.manifest import left_out_sentences
from grounding_rewards.prepare.pipeline import prepare_images
from grounding_rewards.prepare.settings import PrepareSettings
from grounding_rewards.sources import get_source
from grounding_rewards.sources.base import source_options, split_name


@Parameter(name="*")
@dataclass(kw_only=True)
class PrepareOptions:
    """The options of `prepare`: the dataset, the prompts about it, and the form of the folder.

    Args:
        root: the dataset as it was downloaded
        box_format: how the model writes boxes: a name, or a mapping as in a configuration
        out: folder to write, or to go on
        split: only this split of the dataset's own
        readers: how the boxes of several readers become one reference; must be given where several people read an image
        normalize_labels: write findings in the words of the shared vocabulary
        smallest_box: leave out boxes with a side below so many pixels of the image that they were drawn on; an image
            without another box is left out too, as it is no negative
        task: what is asked
        model: folder or name of the model: adds the sizes that its processor resizes to, for formats in these pixels
        labels: findings of interest; default: all
        negatives: share of rows without boxes. For --task detection: of the split train, which loses images without
            findings; other splits keep all; default: all images stay. For --task finding: of the rows of each finding
            in every split, those that ask where it is absent; default: 0.5
        prompt_file: prompts in your own words: a text in which {labels} (--task detection), {finding} or {phrase}
            stands for what is looked for, and {format} for the sentences that state the box format
        splits_from: take the dataset's own splits, unless it holds no image out, or draw every patient by a hash
        split_shares: of patients who are drawn
        seed: of splits, wording and negatives
        side: longest side in pixels; larger images are shrunk
        image_format: jpeg loses little
        squeezed: images are copies in another shape than the images that boxes were drawn on, such as 1024 x 1024
        window: LOW HIGH, the stored values that become black and white, for images of 16 bits that are no DICOM files;
            default: each image's smallest and largest
        processes: that work on images; default: 1
    """

    root: Path
    box_format: str
    out: Path
    split: str | None = None
    option: SourceOption = ()
    allow_outside: AllowOutside = False
    readers: str | None = None
    normalize_labels: bool = False
    bad_rows: BadRows = "refuse"
    smallest_box: float | None = None
    task: Literal["detection", "finding", "phrase"] = "detection"
    model: str | None = None
    labels: Sequence[str] | None = None
    negatives: float | None = None
    prompt_file: Path | None = None
    splits_from: Literal["dataset", "hash"] = "dataset"
    split_shares: str = ",".join(f"{name}={share:g}" for name, share in SHARES.items())
    seed: int = 0
    side: int | None = None
    image_format: Literal["png", "jpeg"] = "png"
    squeezed: bool = False
    window: tuple[float, float] | None = None
    processes: int | None = None

    def settings(self, dataset: str) -> PrepareSettings:
        """The options that decide the content of the folder, parsed from the texts of the command line."""
        names = [setting.name for setting in fields(PrepareSettings)]
        # Most settings have the name and the value of an option; others follow, whose text must be parsed.
        values: dict[str, Any] = {name: getattr(self, name) for name in names if hasattr(self, name)}
        values |= {
            "dataset": dataset,
            "split": None if self.split is None else split_name(self.split),
            "box_format": get_box_format(self.box_format).name,
            "template": None if self.prompt_file is None else read_text(self.prompt_file).strip(),
            "labels": None if self.labels is None else tuple(self.labels),
            "shares": _shares(self.split_shares),
        }
        return PrepareSettings(**values)


def _check_source(_: type, dataset: str) -> None:
    """Refuse the name of no source before anything that is missing is asked for."""
    get_source(dataset)


def run(dataset: Annotated[str, Parameter(validator=_check_source)], /, *, options: PrepareOptions) -> int:
    """Prepare a dataset.

    Args:
        dataset: name of a source, as listed below the examples

    Raises:
        ValueError: An argument is missing or wrong, or the images are; see `prepare_images`.
    """
    check_workers(options.processes)
    settings = options.settings(dataset)
    read = get_source(dataset).read
    with stage_progress() as progress:
        faults: list[str] = []
        source_arguments = source_options(read, options.option)
        if settings.bad_rows == "drop":
            # With a list for its errors the source goes on where it would raise the first.
            source_arguments["faults"] = faults
        images: list[AnnotatedImage] = []
        for image in read(str(options.root), split=settings.split, **source_arguments):
            images.append(image)
            progress("reading tables", len(images), None)
        manifest = prepare_images(
            images,
            options.root,
            options.out,
            settings,
            unreadable=faults,
            processes=options.processes,
            allow_outside=options.allow_outside,
            on_progress=progress,
        )
    print_summary(options.out, manifest)
    return 0


def _shares(text: str) -> tuple[tuple[str, float], ...]:
    """Read the text of `--split-shares`, NAME=SHARE,…, into pairs of a split and its share of the patients."""
    parts = [part.split("=") for part in text.split(",")]
    try:
        return tuple((name.strip(), float(share)) for name, share in parts)
    except ValueError:
        raise ValueError(
            f"Expected NAME=SHARE,… for --split-shares, got {text!r}. Write train=0.8,validation=0.1,test=0.1."
        ) from None


def print_summary(out: Path, manifest: Mapping[str, Any]) -> None:
    """Print a line of counts for each split, what was left out, what the source says, and where the card is."""
    for split, counts in manifest["splits"].items():
        # A split may have no rows.
        share = counts["negatives"] / max(counts["rows"], 1)
        print(
            f"{split}: {counts['images_with_rows']} images, {counts['rows']} rows, {counts['negatives']} without boxes"
            f" ({share:.1%}), {sum(counts['boxes'].values())} boxes, {len(counts['shards'])} shards"
        )
    for sentence in left_out_sentences(manifest):
        say(sentence)
    note = manifest["source"]["note"]
    if note:
        say(f"note: {note}")
    left_out = len(manifest["skipped"]) + len(manifest["unreadable"])
    if left_out:
        print(f"{left_out} images left out; the card lists them")
    copies = manifest["images_with_copies"]
    if copies:
        print(f"{copies} images are copies of one another; patients who share one are in one split")
    say(f"card: {out / 'README.md'}")
