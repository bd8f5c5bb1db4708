"""Evaluate a model, an adapter or a log of completions: how good, where, how certain, and how fragile.

The model is a folder or a name on the hub, or an adapter that PEFT saved. The log is a .jsonl, .json, .csv or .parquet
file with the completions and the `id` of each film; without --dataset its rows also have boxes, width and height.
Several rows with one id are several answers to one film, the first of which is judged.

The folder --out then holds

  report.html        figures with 95 % intervals, curves, and films with their boxes and the answers
  evaluation.json    all figures
  films.jsonl        every film with its answer, for `grounding-rewards diff` and `export`
  completions.jsonl  the answers of the model; the same command goes on where it was stopped
  samples.jsonl      its sampled answers, with --samples
  figures/           the diagrams as PNG and PDF

Beside every figure stand the ceiling, the reference as answer, and baselines: a constant box, nothing found, the whole
image, and another reader where there are several. The page shows films and the model's words: guard it like the films.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from grounding_rewards.commands.console import (
    add_allow_outside,
    add_sizes,
    count_columns,
    late_progress,
    output_console,
    parameters_from_option,
    say,
    stage_progress,
)
from grounding_rewards.data.checks import BAD_ROWS
from grounding_rewards.exchange.names import model_name
from grounding_rewards.metrics.answered_film import AnsweredFilm, write_answered
from grounding_rewards.metrics.answers import confidence_notes, read_answers, read_references
from grounding_rewards.metrics.baselines import REFERENCE, baseline_systems
from grounding_rewards.metrics.evaluation import (
    BAND_RESAMPLES,
    Evaluation,
    Measures,
    evaluate,
    evaluation_file,
    read_evaluation,
    write_evaluation,
)
from grounding_rewards.metrics.ranking_figures import AP_THRESHOLDS
from grounding_rewards.metrics.robustness import ROBUSTNESS_FIGURES, RobustnessPoint
from grounding_rewards.metrics.sizes import SIZES
from grounding_rewards.parsing import box_format_for_model_type, box_format_from_option, box_formats_of
from grounding_rewards.report.tables import evaluation_table, robustness_rows, terminal_table
from grounding_rewards.rewards.average_precision import INTERPOLATIONS
from grounding_rewards.rewards.label_matching import LABEL_MATCHING
from grounding_rewards.versions import package_versions
from grounding_rewards.whole_files import whole_folder, write_whole

if TYPE_CHECKING:
    from datasets import Dataset

    from grounding_rewards.data.answer_logs import Answers
    from grounding_rewards.rewards.grounding import GroundingReward

EXAMPLES = """\
examples:
  grounding-rewards evaluate --model runs/r4/checkpoint --dataset data/vindr --split test --out runs/r4/evaluation
  grounding-rewards evaluate --completions log.jsonl --dataset data/vindr --box-format qwen3-vl --out evaluation
  grounding-rewards evaluate --model Qwen/Qwen2.5-VL-3B-Instruct --dataset data/vindr --samples 8 \\
      --label-matching synonyms --robustness corruptions pgd --out runs/base
  accelerate launch -m grounding_rewards.cli evaluate --model runs/r4/checkpoint --dataset data/vindr --out evaluation
"""

_PACKAGES = ("grounding_rewards", "numpy", "torch", "transformers", "vllm")
_TEMPERATURE = 1.0
_BASELINES = (
    "reference as answer: what no answer can better; constant box: the mean box of each label that at least half of "
    "the training films carry, else of the most frequent label; whole image: with the most frequent label; another "
    "reader: the first who did not draw the reference, and the reference itself on films that nobody else read"
)
_NO_SPLIT = "none"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `grounding-rewards evaluate`."""
    source = parser.add_argument_group("what is evaluated").add_mutually_exclusive_group(required=True)
    source.add_argument("--model", metavar="MODEL", help="folder or name of a checkpoint or of a saved adapter")
    source.add_argument("--completions", nargs="+", type=Path, metavar="LOG", help="files or folders with completions")
    films = parser.add_argument_group("on which films")
    films.add_argument("--dataset", metavar="DATA", help="`synthetic`, a folder of films, or a name on the hub")
    films.add_argument("--split", default="test", help="of the dataset; default: %(default)s")
    films.add_argument("--films", type=int, metavar="N", help="the first so many; all without it")
    films.add_argument(
        "--bad-rows",
        choices=BAD_ROWS,
        default="refuse",
        help="films that cannot be right, such as one with a box outside it: name them all and end "
        "(default), or go on without them and say which",
    )
    films.add_argument(
        "--train-split",
        default="train",
        metavar="SPLIT",
        help="the constant box is its mean box of each label; `none`: that of the films themselves; default: train",
    )
    films.add_argument("--text-column", metavar="NAME", help="column of the log with the completions")
    add_sizes(films)
    add_allow_outside(films)
    measures = parser.add_argument_group("how it is measured")
    measures.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="folder to write")
    measures.add_argument(
        "--overwrite", action="store_true", help="write also where the folder has another evaluation, or other answers"
    )
    measures.add_argument("--box-format", metavar="FORMAT", help="how the model writes boxes; default: derived from it")
    measures.add_argument("--reward", default="R4", help="that films are ranked by; default: %(default)s")
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
        default="film",
        help="sizes of boxes: parts of the film's area, or COCO's in pixels; default: %(default)s",
    )
    measures.add_argument(
        "--resamples",
        type=int,
        default=BAND_RESAMPLES,
        metavar="N",
        help="of the bands around curves; default: %(default)s",
    )
    measures.add_argument("--seed", type=int, default=0, help="of intervals, samples and attacks; default: 0")
    generation = parser.add_argument_group("how a model is asked")
    generation.add_argument("--samples", type=int, default=0, metavar="K", help="sampled answers beside the greedy one")
    generation.add_argument("--temperature", type=float, default=_TEMPERATURE, help="of the samples; default: 1")
    generation.add_argument("--max-new-tokens", type=int, default=256, metavar="N", help="default: %(default)s")
    generation.add_argument("--batch-size", type=int, default=32, metavar="N", help="default: %(default)s")
    generation.add_argument(
        "--max-image-pixels",
        type=int,
        metavar="N",
        help="largest film that the model sees; default: what the processor of the model was saved with",
    )
    generation.add_argument(
        "--backend",
        choices=("transformers", "vllm", "auto"),
        default="transformers",
        help="what runs the model; `auto` is vLLM where it is installed and there is a GPU; default: %(default)s",
    )
    robustness = parser.add_argument_group("how fragile a model is")
    robustness.add_argument(
        "--robustness",
        nargs="+",
        choices=("corruptions", "pgd"),
        metavar="FAMILY",
        help="change the films: `corruptions`, `pgd` or both; each film is asked about 41 and 5 times",
    )
    robustness.add_argument(
        "--robustness-films", type=int, default=100, metavar="N", help="the first so many; default: %(default)s"
    )


def run(options: argparse.Namespace) -> int:
    """Evaluate, write the folder, and print the tables."""
    _check(options)
    reward = _reward(options)
    training = _training_films(options)
    subject = _ask_model(options, reward) if options.model is not None else _read_log(options, reward)
    if subject is None:
        # Not the first process: its share of the answers is generated.
        return 0
    with _step_status() as on_progress:
        rows, texts = subject.answers.rows, subject.answers.texts
        films = read_answers(rows, texts, subject.reward, nms_threshold=options.nms)
        for note in (*subject.answers.notes, *confidence_notes(films)):
            say(f"warning: {note}", error=True)
        on_progress("answering without a look at the films")
        baselines = baseline_systems(rows, training, subject.reward)
        found = _measure(options, subject, {subject.name: films, **baselines}, on_progress)
        on_progress("drawing")
        _write(options, subject, found, films, baselines[REFERENCE])
    _print(options, found)
    return 0


@contextmanager
def _generation_progress(title: str) -> Iterator[Callable[[int, int, int], None]]:
    """A bar over films with the rates of films and tokens."""
    from rich.progress import TextColumn

    with late_progress(*count_columns(), TextColumn("{task.fields[rates]}"), patience=0.0) as (bar, show):
        task = bar.add_task(title, total=None, rates="")
        started = time.monotonic()

        def on_progress(films: int, total: int, tokens: int) -> None:
            seconds = time.monotonic() - started
            rates = f"{films / seconds:.1f} films/s, {tokens / seconds:.0f} tokens/s"
            bar.update(task, completed=films, total=total, rates=rates)
            show()

        yield on_progress


@contextmanager
def _step_status() -> Iterator[Callable[[str], None]]:
    """A line in the terminal that names the current step; nothing is written to a log."""
    from rich.console import Console

    console = Console(stderr=True)
    with console.status("reading the answers") as status:
        yield status.update


class _Subject(NamedTuple):
    """What is evaluated: answers to films, the reward that reads them, and what changed films did to the model."""

    name: str
    answers: Answers
    reward: GroundingReward
    robustness: list[RobustnessPoint]
    facts: dict[str, Any]


def _check(options: argparse.Namespace) -> None:
    if options.model is not None and options.dataset is None:
        raise ValueError("Expected films for --dataset, got none. A model needs films to look at; name some.")
    if options.model is None and options.robustness:
        raise ValueError("Expected a model for --robustness, got a log of completions. Changed films need new answers.")
    if options.robustness and options.backend == "vllm":
        raise ValueError(
            "Expected transformers for --backend beside --robustness, got vllm. Attacks need gradients, and changed "
            "films are asked about by transformers: leave --backend out."
        )
    if options.max_image_pixels is not None and options.model is None:
        raise ValueError("Expected a model for --max-image-pixels, got a log of completions. Its films have been seen.")
    for name in ("films", "robustness_films", "max_image_pixels"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ValueError(
                f"Expected at least 1 for --{name.replace('_', '-')}, got {value}. Leave it out to do without."
            )
    # Raises for wrong values now, not after hours of generation.
    _measures(options, options.reward)
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


def _check_folder(options: argparse.Namespace) -> None:
    """Refuse a folder that has the evaluation of something else: it would be lost."""
    taken = [name for name in ("evaluation.json", "films.jsonl", "report.html") if (options.out / name).exists()]
    if options.overwrite or not taken:
        return
    before = read_evaluation(options.out).command if evaluation_file(options.out).is_file() else None
    if before != _command(options):
        found = f"{taken[0]} of another one" if before is None else f"that of `evaluate {before}`"
        raise ValueError(
            f"Expected a folder without another evaluation for --out, got {str(options.out)!r} with {found}. "
            "Name another folder, or replace what is there with --overwrite."
        )


def _command(options: argparse.Namespace) -> str:
    """What was asked for: the options that are not at their defaults, without where it is written."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    words = []
    for name, value in vars(options).items():
        if name not in ("out", "overwrite") and value != parser.get_default(name):
            given = [] if value is True else value if isinstance(value, list) else [value]
            words += [f"--{name.replace('_', '-')}", *map(str, given)]
    return shlex.join(words)


def _ask_model(options: argparse.Namespace, reward: GroundingReward) -> _Subject | None:
    from grounding_rewards.data.answer_logs import Answers, check_films, dataset_places, film_problems
    from grounding_rewards.data.checks import without_bad_rows
    from grounding_rewards.data.load import light_rows, load_dataset_image, load_split
    from grounding_rewards.data.model_columns import add_columns, add_prompts
    from grounding_rewards.data.resize import fit_images, largest_image, set_image_size
    from grounding_rewards.models.generate import Sampling, completion_begins_in_thinking, reads_special_tokens
    from grounding_rewards.models.load import choose_backend, load_model, model_type_of, process_state
    from grounding_rewards.models.resumable import generate_to_file
    from grounding_rewards.models.robustness import corrupt

    # Only transformers can be asked about changed films, and both must be asked in the same way.
    backend = "transformers" if options.robustness else choose_backend(options.backend)
    # All that can be wrong is looked at before a large model is loaded.
    dataset = load_split(options.dataset, options.split, films=options.films, **_loading(options))
    problems = film_problems(light_rows(dataset), label_matching=options.label_matching)
    expected = "sizes, boxes and labels that fit the film"
    dataset = without_bad_rows(dataset, problems, expected, options.dataset, options.bad_rows)
    read_references(light_rows(dataset))
    box_format = None
    if reward.box_format is None and "box_format" not in dataset.column_names:
        box_format = box_format_for_model_type(model_type_of(options.model))
    state = process_state()
    model, processor = load_model(options.model, backend=backend)
    notes = set_image_size(processor, options.max_image_pixels)
    dataset = add_columns(dataset, processor, box_format, bad_rows=options.bad_rows)
    dataset = add_prompts(dataset, reward.box_format)
    places = dataset_places(dataset)
    image_size = largest_image(dataset, processor)
    if state.is_main_process:
        print(*notes, image_size, sep="\n", file=sys.stderr)
    with state.main_process_first():
        shown = fit_images(dataset, processor)
    if completion_begins_in_thinking(processor, dataset[0]["prompt"]):
        reward = replace(reward, prompt_opens_thinking=True)
    light = light_rows(dataset)
    check_films(light, places, reward)
    if "corruptions" in (options.robustness or ()):
        # Refuse a film that cannot be changed now, not after hours of generation.
        corrupt(shown[0]["image"], dataset[0]["boxes"], "noise", 1)
    name = model_name(options.model)
    options.out.mkdir(parents=True, exist_ok=True)
    skip_special_tokens = not reads_special_tokens(dataset, reward, getattr(processor, "tokenizer", processor))
    share = f", process 1 of {state.num_processes}" if state.num_processes > 1 else ""

    def generate(file: str, title: str, samples: int = 1, temperature: float = 0.0) -> list[list[str]]:
        with _generation_progress(f"{name}, {title}{share}") as on_progress:
            return generate_to_file(
                model,
                processor,
                shown,
                options.out / file,
                Sampling(samples, temperature, options.max_new_tokens, skip_special_tokens),
                batch_size=options.batch_size,
                seed=options.seed,
                backend=backend,
                overwrite=options.overwrite,
                on_progress=on_progress if state.is_main_process else None,
            )

    texts = generate("completions.jsonl", "greedy answers")
    if options.samples:
        title = f"{options.samples} samples"
        sampled = generate("samples.jsonl", title, options.samples, options.temperature)
        texts = [[*greedy, *others] for greedy, others in zip(texts, sampled, strict=True)]
    if not state.is_main_process:
        return None
    answers = Answers(light, texts, partial(load_dataset_image, dataset), places)
    facts = {
        "model": options.model,
        "image size": image_size.removeprefix("Image size: ").rstrip("."),
        "decoding": f"greedy, at most {options.max_new_tokens} new tokens, {backend}"
        + (f"; {options.samples} samples at temperature {options.temperature:g}" if options.samples else ""),
    }
    robustness: list[RobustnessPoint] = []
    if options.robustness:
        robustness, facts["robustness"] = _change_films(options, model, processor, shown, reward)
    return _Subject(name, answers, reward, robustness, facts)


def _change_films(
    options: argparse.Namespace, model: Any, processor: Any, dataset: Dataset, reward: GroundingReward
) -> tuple[list[RobustnessPoint], str]:
    """What changed films do to the model, and how they were changed."""
    from grounding_rewards.models.robustness import Changes, robustness

    films = dataset.select(range(min(options.robustness_films, dataset.num_rows)))
    changes = Changes(tuple(options.robustness), seed=options.seed)
    with stage_progress() as on_progress:
        points = robustness(
            model,
            processor,
            films,
            reward,
            changes,
            label_matching=options.label_matching,
            max_new_tokens=options.max_new_tokens,
            batch_size=options.batch_size,
            on_progress=on_progress,
        )
    return points, f"the first {films.num_rows} films, {changes}"


def _loading(options: argparse.Namespace) -> dict[str, Any]:
    return {"allow_outside": options.allow_outside, "bad_rows": options.bad_rows}


def _read_log(options: argparse.Namespace, reward: GroundingReward) -> _Subject:
    from grounding_rewards.data.answer_logs import check_films, film_problems, read_log
    from grounding_rewards.data.load import load_split

    dataset = None
    if options.dataset is not None:
        dataset = load_split(options.dataset, options.split, films=options.films, **_loading(options))
    answers = read_log(
        options.completions,
        dataset=dataset,
        text_column=options.text_column,
        sizes={"width": options.width, "height": options.height},
        allow_outside=options.allow_outside,
    )
    if options.bad_rows == "drop":
        answers = answers.without(film_problems(answers.rows, reward, label_matching=options.label_matching))
    check_films(answers.rows, answers.places, reward, label_matching=options.label_matching)
    name = options.completions[0].stem if len(options.completions) == 1 else "completions"
    return _Subject(name, answers, reward, [], {"completions": ", ".join(path.name for path in options.completions)})


def _reward(options: argparse.Namespace) -> GroundingReward:
    from grounding_rewards.rewards.grounding import get_reward

    box_format = box_format_from_option(options.box_format)
    return get_reward(options.reward, **{"box_format": box_format, **parameters_from_option(options.reward_kwargs)})


def _training_films(options: argparse.Namespace) -> list[dict[str, Any]] | None:
    from grounding_rewards.data.load import light_rows, load_split

    if options.dataset is None or options.train_split == _NO_SPLIT:
        return None
    try:
        return light_rows(load_split(options.dataset, options.train_split, **_loading(options)))
    except ValueError as error:
        raise ValueError(f"{error} Films for the constant box come from --train-split; `none` does without.") from None


def _measures(options: argparse.Namespace, reward: str) -> Measures:
    return Measures(
        reward,
        options.label_matching,
        options.interpolation,
        tuple(dict.fromkeys(options.iou)),
        options.sizes,
        options.resamples,
        options.seed,
    )


def _measure(
    options: argparse.Namespace,
    subject: _Subject,
    systems: Mapping[str, Sequence[AnsweredFilm]],
    on_progress: Callable[[str], None],
) -> Evaluation:
    from grounding_rewards.data.prepare.manifest import readers_agreement

    return evaluate(
        systems,
        _measures(options, subject.reward.name),
        agreement=None if options.dataset is None else readers_agreement(options.dataset),
        robustness=subject.robustness,
        facts=_facts(options, subject),
        command=_command(options),
        on_progress=on_progress,
    )


def _facts(options: argparse.Namespace, subject: _Subject) -> dict[str, Any]:
    formats = box_formats_of(subject.reward.box_format, (row.get("box_format") for row in subject.answers.rows))
    versions = {name: found for name, found in package_versions(_PACKAGES).items() if found is not None}
    return {
        **subject.facts,
        "dataset": options.dataset or "the log's own films",
        "split": options.split if options.dataset is not None else "",
        "reward": repr(subject.reward),
        "box format": ", ".join(fmt.name for fmt in formats),
        "duplicates": "kept" if options.nms is None else f"removed above IoU {options.nms:g}",
        "baselines": _BASELINES,
        "versions": ", ".join(f"{name} {found}" for name, found in versions.items()),
    }


def _write(
    options: argparse.Namespace,
    subject: _Subject,
    found: Evaluation,
    films: Sequence[AnsweredFilm],
    reference: Sequence[AnsweredFilm],
) -> None:
    from grounding_rewards.report.evaluation_diagrams import write_diagrams
    from grounding_rewards.report.evaluation_page import EvaluationPage, render_evaluation_page

    page = EvaluationPage(
        title=subject.name if options.dataset is None else f"{subject.name} on {Path(options.dataset).name}",
        subtitle=_subtitle(found.facts),
        evaluation=found,
        films=films,
        reward=subject.reward.name,
        load_image=subject.answers.load_image,
        label_matching=options.label_matching,
        reference=reference,
    )
    with whole_folder(options.out) as unfinished:
        write_answered(unfinished / "films.jsonl", films)
        write_evaluation(unfinished, found)
        drawn = {path.name for path in write_diagrams(found, unfinished / "figures")}
        write_whole(unfinished / "report.html", render_evaluation_page(page))
    for path in (options.out / "figures").iterdir():
        if path.name not in drawn:
            # Of an evaluation before, which had other figures.
            path.unlink()


def _subtitle(facts: Mapping[str, Any]) -> str:
    split = f" ({facts['split']})" if facts["split"] else ""
    patients = f" of {facts['patients']} patients" if isinstance(facts["patients"], int) else ""
    # The name of the dataset only: its path is among the facts.
    return (
        f"{facts['films']} films{patients} of {Path(facts['dataset']).name}{split}, "
        f"{facts['films without a finding']} without a finding, {facts['reference boxes']} reference boxes"
    )


def _print(options: argparse.Namespace, found: Evaluation) -> None:
    console = output_console(160)
    console.print(evaluation_table(found, title=_subtitle(found.facts)))
    if found.robustness:
        rows = robustness_rows(found.robustness)
        console.print(terminal_table(rows, ROBUSTNESS_FIGURES, title="Changed films", beneath=False))
    console.print(f"Page: {(options.out / 'report.html').resolve().as_uri()}", soft_wrap=True, markup=False)
