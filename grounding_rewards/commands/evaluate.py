r"""Evaluate a model, an adapter or a log of completions: how good, where, how certain, and how fragile.

The model is a folder or a name on the hub, or an adapter that PEFT saved. The log is a .jsonl, .json, .csv or
.parquet file, or one of inspect_ai, with the completions and, in any column, the id or file name of each image; without
--dataset its rows also have boxes, width and height. Several rows of one image are several answers to it, the first of
which is judged. The folder of a training that logged its completions is a log too: the last answers to each image
count.

The folder --out then holds

  report.html        metrics with 95 % intervals, a plot of IoUs, and images with their boxes and the answers
  evaluation.json    all metrics
  images.jsonl       every image with its answer, for `grounding-rewards diff` and `export`
  completions.jsonl  the answers of the model; the same command resumes an interrupted run
  samples.jsonl      its sampled answers, with --samples
  metrics/           that plot as PNG and PDF

Beside every metric stand the ceiling, the reference as answer, and a constant box. The page shows images and the
model's words: protect it like the images.

examples:
  grounding-rewards evaluate --model runs/r4/checkpoint --dataset data/vindr --split test --out runs/r4/evaluation
  grounding-rewards evaluate log.jsonl --dataset data/vindr --box-format qwen3-vl --out evaluation
  grounding-rewards evaluate --model Qwen/Qwen2.5-VL-3B-Instruct --dataset data/vindr --samples 8 \
      --label-matching synonyms --robustness corruptions pgd --out runs/base
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from cyclopts import Parameter

from grounding_rewards.commands.console import WIDE, output_console, say, stage_progress
from grounding_rewards.commands.options import AnswerOptions, LabelMatching, Reward, in_range
from grounding_rewards.common.environment import package_versions
from grounding_rewards.logs.run_log import model_name
from grounding_rewards.metrics.average_precision import AP_THRESHOLDS
from grounding_rewards.metrics.baselines import REFERENCE, baseline_systems, system_name
from grounding_rewards.metrics.evaluation import Measures, answer_notes, evaluate
from grounding_rewards.metrics.read_predictions import read_predictions
from grounding_rewards.metrics.robustness import RobustnessPoint
from grounding_rewards.parsing import box_formats_of
from grounding_rewards.report import evaluation_page
from grounding_rewards.report.tables import core_table

if TYPE_CHECKING:
    from datasets import Dataset
    from PIL.Image import Image

    from grounding_rewards.logs.join import ImageAnswers
    from grounding_rewards.models.ask import AskedModel
    from grounding_rewards.rewards.grounding import GroundingReward

#: The value of --train-split for which the constant box is fitted on the other patients of the images themselves.
NO_SPLIT = "none"
_PACKAGES = ("grounding_rewards", "numpy", "torch", "transformers", "vllm")


@Parameter(name="*")
@dataclass(kw_only=True)
class EvaluateOptions(AnswerOptions):
    """The options of `evaluate`: the images, how a model is asked about them, and how its answers are measured.

    Args:
        out: folder to write
        completions: files or folders with completions
        train_split: the constant box is fitted on it; `none`: on the other patients of the images themselves
        overwrite: write also where the folder has another evaluation, or other answers
        label_matching: whether a box is right only under the finding's label; mAP always is by label
        iou: thresholds of average precision, beside the mean over 0.5 to 0.95
        seed: of intervals, samples and attacks
        samples: so many sampled answers to each image beside the greedy one
        robustness: change the images: `corruptions`, `pgd` or both; each image is asked about 26 and 5 times
        robustness_images: the first so many
    """

    only_model = (*AnswerOptions.only_model, "robustness", "robustness_images")
    needed_options: ClassVar[Mapping[str, str]] = {
        **AnswerOptions.needed_options,
        "temperature": "samples",
        "train_split": "dataset",
        "robustness_images": "robustness",
    }

    out: Path
    completions: Sequence[Path] = ()
    train_split: str = "train"
    overwrite: bool = False
    reward: Reward = "R4"
    label_matching: LabelMatching = "ignore"
    iou: Annotated[tuple[float, ...], in_range(0, 1, above=True)] = AP_THRESHOLDS
    samples: Annotated[int, in_range(0)] = 0
    robustness: Annotated[tuple[Literal["corruptions", "pgd"], ...], Parameter(consume_multiple=True)] = ()
    robustness_images: Annotated[int, in_range(1)] = 100


class _Subject(NamedTuple):
    """The model or the log that is evaluated.

    name: of the model or the log, for tables.
    answers: to each image, with the number of its row in `images`.
    images: of the dataset; None for a log without one.
    reward: that reads the answers.
    facts: on the page about the model or the log.
    robustness: metrics of a model on changed images.
    """

    name: str
    answers: ImageAnswers
    images: Dataset | None
    reward: GroundingReward
    facts: dict[str, Any]
    robustness: tuple[RobustnessPoint, ...] = ()


def run(log: Sequence[Path] = (), /, *, options: EvaluateOptions) -> int:
    """Evaluate, write the folder, and print the tables.

    Args:
        log: files or folders with completions; also as --completions
    """
    if log:
        # Logs may be given in both ways, and are told of in the same words.
        options.completions = [*log, *options.completions]
    options.check_subject(options.completions)
    # The command without what says nothing about its results.
    command = options.words(hidden=("out", "overwrite"))
    if not options.overwrite:
        evaluation_page.check_evaluation_folder(options.out, command)
    reward = options.judge(options.reward)
    # Refuses wrong values now, not after hours of generation.
    measures = Measures(reward.name, options.label_matching, tuple(dict.fromkeys(options.iou)), options.seed)
    images = options.images(options.split, options.max_images)
    training_images = _training_images(options)
    # A model without images was refused above: the second condition is for the type checker.
    if options.model is not None and images is not None:
        subject = _ask_model(options, options.model, images, reward)
    else:
        subject = _read_log(options, images, reward)
    reward, rows = subject.reward, subject.answers.rows
    with stage_progress("reading the answers") as on_progress:
        predictions = read_predictions(rows, subject.answers.texts, reward)
        for note in (*subject.answers.notes, *answer_notes(predictions)):
            say(f"warning: {note}", stderr=True)
        on_progress("answering without a look at the images")
        systems = {subject.name: predictions, **baseline_systems(rows, training_images, reward)}
        on_progress("measuring")
        evaluation = evaluate(systems, measures)
        facts = {**subject.facts, **_facts(options, reward, rows), **evaluation.facts}
        evaluation = replace(evaluation, robustness=subject.robustness, facts=facts, command=command)
        on_progress("drawing")
        page = evaluation_page.EvaluationPage(
            title=subject.name if options.dataset is None else f"{subject.name} on {Path(options.dataset).name}",
            subtitle=evaluation_page.evaluated_images(facts),
            evaluation=evaluation,
            reward=reward.name,
            load_image=_image_loader(subject),
            reference=systems[REFERENCE],
        )
        # Plots and page need the memory of the other systems, whose answers are not shown.
        systems.clear()
        evaluation_page.write_evaluation_folder(options.out, page)
    _print(options, page)
    return 0


def _image_loader(subject: _Subject) -> Callable[[int], Image | None]:
    """A function that opens the image of an answer, given the answer's index; it returns None without a dataset."""
    from grounding_rewards.data.dataset_columns import load_dataset_image

    images, row_numbers = subject.images, subject.answers.numbers
    return lambda index: None if images is None else load_dataset_image(images, row_numbers[index])


def _training_images(options: EvaluateOptions) -> list[dict[str, Any]] | None:
    """The rows, without images, on which the constant box is fitted; None if the user names no such split."""
    from grounding_rewards.data.dataset_columns import light_rows

    if options.train_split == NO_SPLIT:
        return None
    try:
        images = options.images(options.train_split)
    except ValueError as error:
        raise ValueError(f"{error} Images for the constant box come from --train-split; `none` does without.") from None
    return None if images is None else light_rows(images)


def _read_log(options: EvaluateOptions, images: Dataset | None, reward: GroundingReward) -> _Subject:
    """The log that is evaluated, with its answers."""
    logs = options.completions
    answers = options.read_log(logs, reward, images, label_matching=options.label_matching)
    # Its name in tables: that of its file, if it is a single one.
    name = system_name(logs[0]) if len(logs) == 1 else "completions"
    return _Subject(name, answers, images, reward, {"completions": ", ".join(path.name for path in logs)})


def _ask_model(options: EvaluateOptions, model: str, images: Dataset, reward: GroundingReward) -> _Subject:
    """Ask the model, which writes its answers into the folder of the evaluation, and return both.

    The greedy answer to each image is judged; samples show how much answers vary.
    """
    from grounding_rewards.logs.join import ImageAnswers

    if options.robustness and options.backend == "vllm":
        raise ValueError(
            "Expected transformers for --backend beside --robustness, got vllm. Attacks need gradients, and "
            "changed images are asked about by transformers: leave --backend out."
        )
    # Only transformers can be asked about changed images, and both must be asked in the same way.
    backend = "transformers" if options.robustness else options.backend
    asked_model = options.prepare_asking(images, reward, backend=backend, label_matching=options.label_matching)
    options.out.mkdir(parents=True, exist_ok=True)
    texts = options.ask(asked_model, options.out / "completions.jsonl", "greedy answers", overwrite=options.overwrite)
    decoding = f"greedy, at most {options.max_new_tokens} new tokens, {asked_model.model.backend}"
    if options.samples:
        sampling = {"samples": options.samples, "temperature": options.temperature, "overwrite": options.overwrite}
        samples = options.ask(asked_model, options.out / "samples.jsonl", f"{options.samples} samples", **sampling)
        # The first answer to an image is the one that is judged.
        texts = [[*greedy, *sampled] for greedy, sampled in zip(texts, samples, strict=True)]
        decoding += f"; {options.samples} samples at temperature {options.temperature:g}"
    # The sentence becomes the value of a fact of this name.
    size = asked_model.image_size.removeprefix("Image size: ").rstrip(".")
    facts: dict[str, Any] = {"model": model, "image size": size, "decoding": decoding}
    points: list[RobustnessPoint] = []
    if options.robustness:
        points, facts["robustness"] = _measure_robustness(options, asked_model)
    # It was asked about every row of the dataset in order.
    answers = ImageAnswers(asked_model.rows, texts, numbers=list(range(len(texts))))
    return _Subject(model_name(model), answers, asked_model.dataset, asked_model.reward, facts, tuple(points))


def _measure_robustness(options: EvaluateOptions, asked_model: AskedModel) -> tuple[list[RobustnessPoint], str]:
    """The metrics of the model on changed images, and which images were changed, in words."""
    from grounding_rewards.models.robustness import robustness

    # In the size at which the model sees them; the first alone, as each is asked about many times.
    images = asked_model.fitted_images
    images = images.select(range(min(options.robustness_images, images.num_rows)))
    with stage_progress() as on_progress:
        points = robustness(
            asked_model.model.load(),
            asked_model.processor,
            images,
            asked_model.reward,
            families=options.robustness,
            seed=options.seed,
            label_matching=options.label_matching,
            max_new_tokens=options.max_new_tokens,
            batch_size=options.batch_size,
            on_progress=on_progress,
        )
    return points, f"the first {images.num_rows} images, seed {options.seed}"


def _facts(options: EvaluateOptions, reward: GroundingReward, rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What the page says of how it was measured, of a model as of a log: images, reward and versions of libraries."""
    formats = box_formats_of(reward.box_format, (row.get("box_format") for row in rows))
    versions = {name: version for name, version in package_versions(_PACKAGES).items() if version is not None}
    return {
        "dataset": options.dataset or "the log",
        "split": options.split if options.dataset is not None else "",
        "reward": repr(reward),
        "box format": ", ".join(box_format.name for box_format in formats),
        "bad rows": "refused" if options.bad_rows == "refuse" else "left out",
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
    }


def _print(options: EvaluateOptions, page: evaluation_page.EvaluationPage) -> None:
    """Print the tables of an evaluation, and where its page is."""
    evaluation = page.evaluation
    console = output_console(160)
    console.print(evaluation.looking, markup=False)
    table = core_table(evaluation, page.reward, title=page.subtitle)
    if console.width < WIDE:
        # The columns of the metric, the model, and how far it is above the constant box; not the baselines.
        table = table.first_columns(3)
    console.print(table.rich(caption=f"{len(evaluation.metrics) - len(table.rows)} more metrics on the page."))
    console.print(f"Page: {(options.out / 'report.html').resolve().as_uri()}", soft_wrap=True, markup=False)
