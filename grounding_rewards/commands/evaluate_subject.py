"""What `grounding-rewards evaluate` evaluates: the answers that a model gives now, or those of a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from grounding_rewards.commands.console import count_columns, late_progress, say, stage_progress
from grounding_rewards.commands.evaluate_options import EvaluateOptions
from grounding_rewards.commands.options import share_of, stated_sizes
from grounding_rewards.exchange.names import model_name
from grounding_rewards.metrics.answers import reference_images
from grounding_rewards.metrics.robustness import RobustnessPoint
from grounding_rewards.parsing import box_format_for_model_type

if TYPE_CHECKING:
    from datasets import Dataset

    from grounding_rewards.logs.answer_logs import Answers
    from grounding_rewards.models.load import UnloadedModel
    from grounding_rewards.rewards.grounding import GroundingReward


class Subject(NamedTuple):
    """What is evaluated: answers to images, the reward that reads them, and what changed images did to the model."""

    name: str
    answers: Answers
    reward: GroundingReward
    robustness: list[RobustnessPoint]
    facts: dict[str, Any]


class Asked(NamedTuple):
    """A model and the images that it is asked about.

    model: loaded when it is asked.
    dataset: with the columns that depend on the model, and prompts.
    shown: the same images at the size at which the model sees them.
    rows: one an image, without prompt and image.
    reward: knows whether the prompt opens a thinking.
    skip_special_tokens: False where they carry boxes or mark thinking.
    image_size: the largest image, in words.
    """

    model: UnloadedModel
    processor: Any
    dataset: Dataset
    shown: Dataset
    rows: list[dict[str, Any]]
    places: list[str]
    reward: GroundingReward
    skip_special_tokens: bool
    backend: str
    image_size: str
    state: Any


def load_asked(
    model_path: str,
    dataset: Dataset,
    reward: GroundingReward,
    *,
    source: str,
    backend: str,
    bad_rows: str,
    label_matching: str,
    max_image_pixels: int | None,
) -> Asked:
    """The model, which is not loaded yet, and the images of the dataset, as they fit each other.

    Raises:
        ValueError: model and images do not fit each other, which is seen before the model is loaded where it can be.
    """
    from grounding_rewards.data.checks import without_bad_rows
    from grounding_rewards.data.light_rows import light_rows
    from grounding_rewards.data.model_columns import add_columns, add_prompts
    from grounding_rewards.images.resize import fit_images, largest_image, set_image_size
    from grounding_rewards.logs.answer_logs import check_images, dataset_places, image_problems
    from grounding_rewards.logs.run_log import tool_notes
    from grounding_rewards.models.generate import completion_begins_in_thinking, reads_special_tokens
    from grounding_rewards.models.load import load_later, model_type_of, process_state

    # All that can be wrong is looked at before a large model is loaded.
    problems = image_problems(light_rows(dataset), label_matching=label_matching)
    expected = "sizes, boxes and labels that fit the image"
    dataset = without_bad_rows(dataset, problems, expected, source, bad_rows)
    reference_images(light_rows(dataset))
    box_format = None
    if reward.box_format is None and "box_format" not in dataset.column_names:
        box_format = box_format_for_model_type(model_type_of(model_path))
    state = process_state()
    model, processor = load_later(model_path, backend=backend)
    notes = [*set_image_size(processor, max_image_pixels), *tool_notes(model_path)]
    dataset = add_columns(dataset, processor, box_format, bad_rows=bad_rows)
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
    check_images(light, places, reward)
    skip = not reads_special_tokens(dataset, reward, getattr(processor, "tokenizer", processor))
    return Asked(model, processor, dataset, shown, light, places, reward, skip, backend, image_size, state)


def ask_model(options: EvaluateOptions, model_path: str, images: Dataset, reward: GroundingReward) -> Subject | None:
    """Ask the model about the images of the dataset; None in all processes but the first, and for a share of the
    images.

    Raises:
        ValueError: model and images do not fit each other, which is seen before the model is loaded where it can be.
    """
    from grounding_rewards.data.light_rows import load_dataset_image
    from grounding_rewards.logs.answer_logs import Answers
    from grounding_rewards.models.generate import Sampling
    from grounding_rewards.models.load import choose_backend
    from grounding_rewards.models.resumable import generate_to_file
    from grounding_rewards.models.robustness import corrupt

    # Only transformers can be asked about changed images, and both must be asked in the same way.
    backend = "transformers" if options.robustness else choose_backend(options.backend)
    share = share_of(options.shard, options.join)
    asked = load_asked(
        model_path,
        images,
        reward,
        source=str(options.dataset),
        backend=backend,
        bad_rows=options.bad_rows,
        label_matching=options.label_matching,
        max_image_pixels=options.max_image_pixels,
    )
    model, processor, dataset, shown, state = asked.model, asked.processor, asked.dataset, asked.shown, asked.state
    reward = asked.reward
    if "corruptions" in options.robustness:
        # Refuse an image that cannot be changed now, not after hours of generation.
        corrupt(shown[0]["image"], dataset[0]["boxes"], "noise", 1)
    name = model_name(model_path)
    options.out.mkdir(parents=True, exist_ok=True)
    of_several = f", process 1 of {state.num_processes}" if state.num_processes > 1 else ""

    def generate(file: str, title: str, samples: int = 1, temperature: float = 0.0) -> list[list[str]]:
        with generation_progress(f"{name}, {title}{of_several}") as on_progress:
            return generate_to_file(
                model,
                processor,
                shown,
                options.out / file,
                Sampling(samples, temperature, options.max_new_tokens, asked.skip_special_tokens),
                batch_size=options.batch_size,
                seed=options.seed,
                overwrite=options.overwrite,
                share=share,
                join=options.join,
                on_progress=on_progress if state.is_main_process else None,
            )

    texts = generate("completions.jsonl", "greedy answers")
    if options.samples:
        title = f"{options.samples} samples"
        sampled = generate("samples.jsonl", title, options.samples, options.temperature)
        texts = [[*greedy, *others] for greedy, others in zip(texts, sampled, strict=True)]
    if share is not None and state.is_main_process:
        say(f"{options.out}: {len(texts)} images of shard {share} answered; when all are, give --join instead")
    if share is not None or not state.is_main_process:
        return None
    answers = Answers(asked.rows, texts, partial(load_dataset_image, dataset), asked.places)
    facts = {
        "model": model_path,
        "image size": asked.image_size.removeprefix("Image size: ").rstrip("."),
        "decoding": f"greedy, at most {options.max_new_tokens} new tokens, {backend}"
        + (f"; {options.samples} samples at temperature {options.temperature:g}" if options.samples else ""),
    }
    robustness: list[RobustnessPoint] = []
    if options.robustness:
        robustness, facts["robustness"] = _change_images(options, model.load(), processor, shown, reward)
    return Subject(name, answers, reward, robustness, facts)


def _change_images(
    options: EvaluateOptions, model: Any, processor: Any, dataset: Dataset, reward: GroundingReward
) -> tuple[list[RobustnessPoint], str]:
    """What changed images do to the model, and how they were changed."""
    from grounding_rewards.models.robustness import Changes, robustness

    images = dataset.select(range(min(options.robustness_images, dataset.num_rows)))
    changes = Changes(tuple(options.robustness), seed=options.seed)
    with stage_progress() as on_progress:
        points = robustness(
            model,
            processor,
            images,
            reward,
            changes,
            label_matching=options.label_matching,
            max_new_tokens=options.max_new_tokens,
            batch_size=options.batch_size,
            on_progress=on_progress,
        )
    return points, f"the first {images.num_rows} images, {changes}"


def read_logged(options: EvaluateOptions, dataset: Dataset | None, reward: GroundingReward) -> Subject:
    """Read the log of completions, and the images that it answers.

    Raises:
        ValueError: they do not fit each other; file and row are named.
    """
    from grounding_rewards.logs.answer_logs import check_images, image_problems, read_log

    answers = read_log(
        options.completions,
        dataset=dataset,
        text_column=options.text_column,
        sizes=stated_sizes(options.width, options.height),
        allow_outside=options.allow_outside,
    )
    if options.bad_rows == "drop":
        answers = answers.without(image_problems(answers.rows, reward, label_matching=options.label_matching))
    check_images(answers.rows, answers.places, reward, label_matching=options.label_matching)
    name = options.completions[0].stem if len(options.completions) == 1 else "completions"
    return Subject(name, answers, reward, [], {"completions": ", ".join(path.name for path in options.completions)})


@contextmanager
def generation_progress(title: str) -> Iterator[Callable[[int, int, int], None]]:
    """A bar over images with the rates of images and tokens."""
    from rich.progress import TextColumn

    with late_progress(*count_columns(), TextColumn("{task.fields[rates]}"), patience=0.0) as (bar, show):
        task = bar.add_task(title, total=None, rates="")
        started = time.monotonic()

        def on_progress(images: int, total: int, tokens: int) -> None:
            seconds = time.monotonic() - started
            rates = f"{images / seconds:.1f} images/s, {tokens / seconds:.0f} tokens/s"
            bar.update(task, completed=images, total=total, rates=rates)
            show()

        yield on_progress
