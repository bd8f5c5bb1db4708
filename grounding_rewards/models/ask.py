"""Check that a model and the images of a dataset fit each other, and ask the model about them.

The model is loaded only after the checks, when the first answer is missing.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grounding_rewards.metrics.read_predictions import reference_images
from grounding_rewards.parsing import box_format_for_model_type

if TYPE_CHECKING:
    from datasets import Dataset

    from grounding_rewards.models.load import UnloadedModel
    from grounding_rewards.rewards.grounding import GroundingReward


@dataclass(frozen=True, kw_only=True)
class AskedModel:
    """A model and the images that it is asked about.

    Attributes:
        model: loaded when an answer is missing.
        processor: the model's.
        dataset: the images with prompts and the columns that depend on the model.
        fitted_images: the dataset with images at the size at which the model sees them.
        rows: of the dataset, without prompt and image.
        reward: reads the answers; its `prompt_opens_thinking` is that of the prompts.
        skip_special_tokens: False if special tokens carry boxes or mark thinking.
        image_size: the largest image, in words.
    """

    model: UnloadedModel
    processor: Any
    dataset: Dataset
    fitted_images: Dataset
    rows: list[dict[str, Any]]
    reward: GroundingReward
    skip_special_tokens: bool
    image_size: str

    def answer(
        self, file: Path, *, samples: int = 1, temperature: float = 0.0, max_new_tokens: int = 256, **options: Any
    ) -> list[list[str]]:
        """Generate the answers to each image into a file, or the rest of them if the file holds some.

        Args:
            file: ends in .jsonl.
            samples: answers to each image.
            temperature: of sampling, also written into the file; 0 is greedy.
            max_new_tokens: of an answer.
            **options: as for :func:`grounding_rewards.models.generate.generate_to_file`.
        """
        from grounding_rewards.models.generate import Sampling, generate_to_file

        images = self.fitted_images
        if temperature:
            # So that the file shows groups of samples by itself.
            images = images.add_column("temperature", [temperature] * images.num_rows)
        sampling = Sampling(samples, temperature, max_new_tokens, self.skip_special_tokens)
        return generate_to_file(self.model, self.processor, images, file, sampling, **options)


def prepare_asking(
    model_path: str,
    dataset: Dataset,
    reward: GroundingReward,
    *,
    source: str,
    backend: str = "auto",
    vllm_options: Mapping[str, Any] | None = None,
    bad_rows: str = "refuse",
    label_matching: str = "ignore",
    max_image_pixels: int | None = None,
) -> AskedModel:
    """Check a model and a dataset, and return both ready for :meth:`AskedModel.answer`; the model is not loaded yet.

    Args:
        model_path: folder or name of a checkpoint or adapter.
        dataset: images with the package's columns.
        reward: reads the answers.
        source: the name of the dataset in errors.
        backend: one of :data:`grounding_rewards.models.load.BACKENDS`.
        vllm_options: options of vLLM.
        bad_rows: `refuse` images that cannot be right, or `drop` them.
        label_matching: as the answers will be judged.
        max_image_pixels: largest image that the model sees; None for what its processor was saved with.

    Raises:
        ValueError: the model does not exist or cannot be asked, or the images are faulty or do not fit it.
    """
    from grounding_rewards.data.checks import without_bad_rows
    from grounding_rewards.data.dataset_columns import add_columns, add_prompts, light_rows
    from grounding_rewards.images.resize import fit_images, largest_image, set_image_size
    from grounding_rewards.logs.join import image_problems
    from grounding_rewards.logs.run_log import tool_notes
    from grounding_rewards.models.generate import check_processor, completion_begins_in_thinking, reads_special_tokens
    from grounding_rewards.models.load import load_later

    expected = "sizes, boxes and labels that fit the image"
    rows = light_rows(dataset)
    problems = image_problems(rows, label_matching=label_matching)
    dataset = without_bad_rows(dataset, problems, expected, source, bad_rows)
    # Refuses two images of one name now, not after hours of answering.
    reference_images([row for number, row in enumerate(rows) if number not in problems])
    model, processor = load_later(model_path, backend=backend, vllm_options=vllm_options)
    box_format = None
    if reward.box_format is None and "box_format" not in dataset.column_names:
        box_format = box_format_for_model_type(model.model_type)
    notes = set_image_size(processor, max_image_pixels) + tool_notes(model_path)
    dataset = add_columns(dataset, processor, box_format, bad_rows=bad_rows)
    dataset = add_prompts(dataset, reward.box_format)
    image_size = largest_image(processor)
    print(*notes, image_size, sep="\n", file=sys.stderr)
    fitted_images = fit_images(dataset, processor)
    check_processor(processor, fitted_images, source)
    if completion_begins_in_thinking(processor, dataset[0]["prompt"]):
        reward = replace(reward, prompt_opens_thinking=True)
    # Again, now that the rows have the box format and the sizes that the model sees.
    rows = light_rows(dataset)
    without_bad_rows(dataset, image_problems(rows, reward), expected, source, "refuse")
    return AskedModel(
        model=model,
        processor=processor,
        dataset=dataset,
        fitted_images=fitted_images,
        rows=rows,
        reward=reward,
        skip_special_tokens=not reads_special_tokens(dataset, reward, getattr(processor, "tokenizer", processor)),
        image_size=image_size,
    )
