r"""Evaluate a model, an adapter or a log of completions: how good, where, how certain, and how fragile.

The model is a folder or a name on the hub, or an adapter that PEFT saved. The log is a .jsonl, .json, .csv, .tsv or
.parquet file, or one of inspect_ai, with the completions and, in any column, the id or file name of each image; without
--dataset its rows also have boxes, width and height. Several rows of one image are several answers to it, the first of
which is judged. The folder of a training that logged its completions is a log too: the last answers to each image
count.

The folder --out then holds

  report.html        metrics with 95 % intervals, curves, and images with their boxes and the answers
  evaluation.json    all metrics
  images.jsonl       every image with its answer, for `grounding-rewards diff` and `export`
  completions.jsonl  the answers of the model; the same command resumes an interrupted run
  samples.jsonl      its sampled answers, with --samples
  blank.jsonl        its answers to images of one grey, with --blank
  metrics/           the plots as PNG and PDF
  per_class.csv      the metrics of every label
  per_image.csv      the boxes and rewards of every image

Beside every metric stand the ceiling, the reference as answer, and baselines: a constant box, nothing found and the
whole image. The page shows images and the model's words: protect it like the images.

examples:
  grounding-rewards evaluate --model runs/r4/checkpoint --dataset data/vindr --split test --out runs/r4/evaluation
  grounding-rewards evaluate log.jsonl --dataset data/vindr --box-format qwen3-vl --out evaluation
  grounding-rewards evaluate --model Qwen/Qwen2.5-VL-3B-Instruct --dataset data/vindr --samples 8 \
      --label-matching synonyms --robustness corruptions pgd --out runs/base
  accelerate launch -m grounding_rewards.cli evaluate --model runs/r4/checkpoint --dataset data/vindr --out evaluation
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from cyclopts import Parameter

from grounding_rewards.commands.console import output_console, say, stage_progress, step_status
from grounding_rewards.commands.options import (
    AnswerOptions,
    LabelMatching,
    Reward,
    final_reward,
    parameters_from_option,
    stated_sizes,
    within,
)
from grounding_rewards.common.atomic_files import check_settings, whole_folder, write_whole
from grounding_rewards.common.environment import package_versions
from grounding_rewards.exchange.model_card import model_name
from grounding_rewards.metrics.answered_image import AnsweredImage, write_answered
from grounding_rewards.metrics.answers import read_answers
from grounding_rewards.metrics.average_precision import AP_THRESHOLDS
from grounding_rewards.metrics.evaluation import (
    Evaluation,
    Measures,
    answer_notes,
    evaluate,
    evaluation_file,
    read_evaluation,
    write_evaluation,
)
from grounding_rewards.metrics.image_dependence import BLANK, REFERENCE, baseline_systems
from grounding_rewards.metrics.robustness import ROBUSTNESS_METRICS, RobustnessPoint
from grounding_rewards.parsing import box_format_from_option, box_formats_of
from grounding_rewards.report.tables import (
    core_table,
    csv_text,
    evaluation_table,
    metrics_table,
    per_class_rows,
    per_image_rows,
    robustness_rows,
    rows_of_groups,
)

if TYPE_CHECKING:
    from datasets import Dataset

    from grounding_rewards.logs.join import Answers
    from grounding_rewards.models.ask import AskedModel
    from grounding_rewards.rewards.grounding import GroundingReward

#: As --train-split: no images for the constant box.
NO_SPLIT = "none"
# Where and by how many it is done, and what is shown of it, changes nothing about what is evaluated.
_NOT_ASKED = ("out", "overwrite", "all_metrics")


@Parameter(name="*")
@dataclass(kw_only=True)
class EvaluateOptions(AnswerOptions):
    """What is evaluated, on which images, how a model is asked, and how its answers are measured.

    Args:
        out: folder to write
        completions: files or folders with completions
        train_split: the constant box is fitted on it; `none`: on the other patients of the images themselves
        overwrite: write also where the folder has another evaluation, or other answers
        label_matching: whether a box is right only under the finding's label; mAP always is by label
        nms: leave out boxes that overlap a higher-scoring one of their label by more than this IoU
        interpolation: of average precision: over all recalls (VOC since 2010), at 101 (COCO) or at 11 (VOC before)
        iou: thresholds of average precision, beside the mean over 0.5 to 0.95
        seed: of intervals, samples and attacks
        samples: so many sampled answers to each image beside the greedy one
        temperature: of the samples
        blank: ask about the images again, each replaced by its mean grey: what is still right was not seen
        robustness: change the images: `corruptions`, `pgd` or both; each image is asked about 41 and 5 times
        robustness_images: the first so many
        all_metrics: print every metric, not the twelve that are asked for first
    """

    only_model = (*AnswerOptions.only_model, "temperature", "blank", "robustness", "robustness_images")

    out: Path
    completions: Sequence[Path] = ()
    train_split: str = "train"
    overwrite: bool = False
    reward: Reward = "R4"
    label_matching: LabelMatching = "ignore"
    nms: Annotated[float | None, within(0, 1)] = None
    interpolation: Literal["all", "101", "11"] = "101"
    iou: Annotated[tuple[float, ...], within(0, 1, above=True)] = AP_THRESHOLDS
    samples: Annotated[int, within(0)] = 0
    temperature: Annotated[float, within(above=True)] = 1.0
    blank: bool = False
    robustness: Annotated[tuple[Literal["corruptions", "pgd"], ...], Parameter(consume_multiple=True)] = ()
    robustness_images: Annotated[int, within(1)] = 100
    all_metrics: Annotated[bool, Parameter(name="--all")] = False

    def check(self) -> None:
        """Refuse what cannot be right before a model is loaded, or a log is read.

        Raises:
            ValueError: options exclude each other, a value is out of range, or `--out` has another evaluation.
        """
        self.check_subject(self.completions, "a log of completions")
        for name, needed in (("temperature", "samples"), ("robustness_images", "robustness")):
            if getattr(self, name) != getattr(EvaluateOptions, name) and not getattr(self, needed):
                option = name.replace("_", "-")
                raise ValueError(f"Expected --{needed} beside --{option}, got none. Leave it out: it has no effect.")
        if self.robustness and self.backend == "vllm":
            raise ValueError(
                "Expected transformers for --backend beside --robustness, got vllm. Attacks need gradients, and "
                "changed images are asked about by transformers: leave --backend out."
            )
        # Raises for wrong values now, not after hours of generation.
        self.measures(self.reward)
        if self.out.exists() and not self.out.is_dir():
            raise ValueError(f"Expected a folder for --out, got the file {str(self.out)!r}. Give another name.")
        taken = [name for name in ("evaluation.json", "images.jsonl", "report.html") if (self.out / name).exists()]
        if self.overwrite or not taken:
            return
        # The evaluation of something else would be lost.
        before = read_evaluation(self.out).command if evaluation_file(self.out).is_file() else None
        before = before or f"{taken[0]} of another one"
        remedy = "Name another folder, or replace what is there with --overwrite."
        check_settings(self.out, {"evaluate": before}, {"evaluate": self.command()}, remedy)

    def command(self) -> str:
        """What was asked for: the options that are not at their defaults, without where it is written."""
        words = []
        for one in fields(self):
            value: Any = getattr(self, one.name)
            if one.name not in _NOT_ASKED and value != (None if one.default is MISSING else one.default):
                given = [] if value is True else value if isinstance(value, list | tuple) else [value]
                words += [f"--{one.name.replace('_', '-')}", *map(str, given)]
        return shlex.join(words)

    def measures(self, reward: str) -> Measures:
        """How the options say to measure.

        Raises:
            ValueError: a value is out of range.
        """
        iou = tuple(dict.fromkeys(self.iou))
        return Measures(reward, self.label_matching, self.interpolation, iou, self.seed)


_PACKAGES = ("grounding_rewards", "numpy", "torch", "transformers", "vllm")
_BASELINES = (
    "reference as answer: what no answer can better; constant box: what is best on the training images of the median "
    "box of each label that at least half of them carry, the median of all boxes and one box fitted to all; "
    "whole image: with the most frequent label"
)


class Subject(NamedTuple):
    """What is evaluated: answers to images, the reward that reads them, and what changed images did to the model.

    `blank` are the answers to the same images without anything to see, where they were asked for.
    """

    name: str
    answers: Answers
    reward: GroundingReward
    robustness: list[RobustnessPoint]
    facts: dict[str, Any]
    blank: list[list[str]] | None = None


def run(log: Sequence[Path] = (), /, *, options: EvaluateOptions) -> int:
    """Evaluate, write the folder, and print the tables.

    Args:
        log: files or folders with completions; also as --completions
    """
    from grounding_rewards.rewards.grounding import get_reward

    if log:
        options.completions = [*log, *options.completions]
    options.check()
    parameters = parameters_from_option(options.reward_kwargs)
    parameters = {"box_format": box_format_from_option(options.box_format), **parameters}
    reward = final_reward(get_reward(options.reward, **parameters))
    training = _training_images(options)
    images = options.images(options.split, options.max_images)
    if options.model is not None and images is not None:
        subject = _ask_model(options, images, reward)
    else:
        subject = _read_logged(options, images, reward)
    if subject is None:
        # Not the first process: its share of the answers is generated.
        return 0
    with step_status("reading the answers") as on_progress:
        rows, texts = subject.answers.rows, subject.answers.texts
        answered = read_answers(rows, texts, subject.reward, nms_threshold=options.nms)
        for note in (*subject.answers.notes, *answer_notes(answered)):
            say(f"warning: {note}", error=True)
        on_progress("answering without a look at the images")
        baselines = baseline_systems(rows, training, subject.reward)
        if subject.blank is not None:
            baselines[BLANK] = read_answers(rows, subject.blank, subject.reward, nms_threshold=options.nms)
        found = _measure(options, subject, {subject.name: answered, **baselines}, on_progress)
        on_progress("drawing")
        # The page shows this one alone; the others are let go of before plots and page need memory.
        reference = baselines[REFERENCE]
        del baselines
        _write(options, subject, found, answered, reference)
    _print(options, found, subject.reward.name)
    return 0


def _training_images(options: EvaluateOptions) -> list[dict[str, Any]] | None:
    from grounding_rewards.data.dataset_columns import light_rows

    if options.train_split == NO_SPLIT:
        return None
    try:
        images = options.images(options.train_split)
        return None if images is None else light_rows(images)
    except ValueError as error:
        raise ValueError(f"{error} Images for the constant box come from --train-split; `none` does without.") from None


def _ask_model(options: EvaluateOptions, images: Dataset, reward: GroundingReward) -> Subject | None:
    """Ask the model about the images of the dataset; None in all processes but the first."""
    from grounding_rewards.data.dataset_columns import load_dataset_image
    from grounding_rewards.logs.join import Answers
    from grounding_rewards.models.ask import blank_images
    from grounding_rewards.models.robustness import corrupt

    # Only transformers can be asked about changed images, and both must be asked in the same way.
    backend = "transformers" if options.robustness else options.backend
    asked = options.prepare_asking(images, reward, backend=backend, label_matching=options.label_matching)
    if "corruptions" in options.robustness:
        # Refuse an image that cannot be changed now, not after hours of generation.
        corrupt(asked.shown[0]["image"], asked.dataset[0]["boxes"], "noise", 1)
    options.out.mkdir(parents=True, exist_ok=True)
    texts = options.ask(asked, options.out / "completions.jsonl", "greedy answers", overwrite=options.overwrite)
    decoding = f"greedy, at most {options.max_new_tokens} new tokens, {asked.backend}"
    if options.samples:
        sampling = {"samples": options.samples, "temperature": options.temperature, "overwrite": options.overwrite}
        sampled = options.ask(asked, options.out / "samples.jsonl", f"{options.samples} samples", **sampling)
        texts = [[*greedy, *others] for greedy, others in zip(texts, sampled, strict=True)]
        decoding += f"; {options.samples} samples at temperature {options.temperature:g}"
    blank = None
    if options.blank:
        without = replace(asked, shown=blank_images(asked.shown))
        blank = options.ask(without, options.out / "blank.jsonl", "blank images", overwrite=options.overwrite)
    if not asked.is_first:
        return None
    answers = Answers(asked.rows, texts, partial(load_dataset_image, asked.dataset), asked.places)
    size = asked.image_size.removeprefix("Image size: ").rstrip(".")
    facts = {"model": options.model, "image size": size, "decoding": decoding}
    robustness: list[RobustnessPoint] = []
    if options.robustness:
        robustness, facts["robustness"] = _change_images(options, asked)
    return Subject(model_name(str(options.model)), answers, asked.reward, robustness, facts, blank)


def _change_images(options: EvaluateOptions, asked: AskedModel) -> tuple[list[RobustnessPoint], str]:
    """What changed images do to the model, and how they were changed."""
    from grounding_rewards.models.robustness import Changes, robustness

    images = asked.shown.select(range(min(options.robustness_images, asked.shown.num_rows)))
    changes = Changes(tuple(options.robustness), seed=options.seed)
    with stage_progress() as on_progress:
        points = robustness(
            asked.model.load(),
            asked.processor,
            images,
            asked.reward,
            changes,
            label_matching=options.label_matching,
            max_new_tokens=options.max_new_tokens,
            batch_size=options.batch_size,
            on_progress=on_progress,
        )
    return points, f"the first {images.num_rows} images, {changes}"


def _read_logged(options: EvaluateOptions, dataset: Dataset | None, reward: GroundingReward) -> Subject:
    """Read the log of completions, and the images that it answers.

    Raises:
        ValueError: they do not fit each other; file and row are named.
    """
    from grounding_rewards.logs.join import read_log

    answers = read_log(
        options.completions,
        dataset=dataset,
        text_column=options.text_column,
        box_format=reward.box_format,
        by_order=options.by_order,
        sizes=stated_sizes(options.width, options.height),
        allow_outside=options.allow_outside,
    )
    answers = answers.checked(reward, label_matching=options.label_matching, bad_rows=options.bad_rows)
    name = options.completions[0].stem if len(options.completions) == 1 else "completions"
    return Subject(name, answers, reward, [], {"completions": ", ".join(path.name for path in options.completions)})


def _measure(
    options: EvaluateOptions,
    subject: Subject,
    systems: Mapping[str, Sequence[AnsweredImage]],
    on_progress: Callable[[str], None],
) -> Evaluation:
    from grounding_rewards.prepare.manifest import readers_agreement

    formats = box_formats_of(subject.reward.box_format, (row.get("box_format") for row in subject.answers.rows))
    versions = {name: found for name, found in package_versions(_PACKAGES).items() if found is not None}
    facts = {
        **subject.facts,
        "dataset": options.dataset or "the log's own images",
        "split": options.split if options.dataset is not None else "",
        "reward": repr(subject.reward),
        "box format": ", ".join(fmt.name for fmt in formats),
        "bad rows": "refused" if options.bad_rows == "refuse" else "left out",
        "duplicates": "kept" if options.nms is None else f"removed above IoU {options.nms:g}",
        "baselines": _BASELINES,
        "versions": ", ".join(f"{name} {found}" for name, found in versions.items()),
    }
    return evaluate(
        systems,
        options.measures(subject.reward.name),
        agreement=None if options.dataset is None else readers_agreement(options.dataset),
        robustness=subject.robustness,
        facts=facts,
        command=options.command(),
        on_progress=on_progress,
    )


def _write(
    options: EvaluateOptions,
    subject: Subject,
    found: Evaluation,
    images: Sequence[AnsweredImage],
    reference: Sequence[AnsweredImage],
) -> None:
    from grounding_rewards.report.evaluation_page import EvaluationPage, render_evaluation_page
    from grounding_rewards.report.plots import write_plots

    page = EvaluationPage(
        title=subject.name if options.dataset is None else f"{subject.name} on {Path(options.dataset).name}",
        subtitle=_subtitle(found.facts),
        evaluation=found,
        images=images,
        reward=subject.reward.name,
        load_image=subject.answers.load_image,
        label_matching=options.label_matching,
        reference=reference,
    )
    with whole_folder(options.out) as unfinished:
        write_answered(unfinished / "images.jsonl", images)
        write_evaluation(unfinished, found)
        drawn = {path.name for path in write_plots(page.plots, unfinished / "metrics")}
        write_whole(unfinished / "report.html", render_evaluation_page(page))
        write_whole(unfinished / "per_class.csv", csv_text(per_class_rows(found)))
        write_whole(unfinished / "per_image.csv", csv_text(per_image_rows(images, options.label_matching)))
    for path in (options.out / "metrics").iterdir():
        if path.name not in drawn:
            # Of an evaluation before, which had other metrics.
            path.unlink()


def _subtitle(facts: Mapping[str, Any]) -> str:
    split = f" ({facts['split']})" if facts["split"] else ""
    patients = f" of {facts['patients']} patients" if isinstance(facts["patients"], int) else ""
    # The name of the dataset only: its path is among the facts.
    return (
        f"{facts['images']} images{patients} of {Path(facts['dataset']).name}{split}, "
        f"{facts['images without a finding']} without a finding, {facts['reference boxes']} reference boxes"
    )


def _print(options: EvaluateOptions, found: Evaluation, reward: str) -> None:
    console = output_console(160)
    console.print(found.looking, soft_wrap=True, markup=False)
    title = _subtitle(found.facts)
    table = evaluation_table(found, title=title) if options.all_metrics else core_table(found, reward, title=title)
    left = 0 if options.all_metrics else len(found.metrics) - len(table.rows)
    console.print(table.rich(caption=f"{left} more metrics with --all and on the page." if left else None))
    for title, rows, headings in (
        ("Changed images", robustness_rows(found.robustness), ROBUSTNESS_METRICS),
        ("By source", rows_of_groups(found.per_source), found.headings),
    ):
        if rows:
            console.print(metrics_table(rows, headings, title=title).rich())
    console.print(f"Page: {(options.out / 'report.html').resolve().as_uri()}", soft_wrap=True, markup=False)
